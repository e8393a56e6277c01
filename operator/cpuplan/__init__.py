"""cpuplan: which CPUs an inference server's threads use, planned from what the node really has."""

__version__ = "0.1.0"
