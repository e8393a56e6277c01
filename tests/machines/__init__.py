"""The project's own machines: described in a few lines each, written as the trees that their kernels would show.

What belongs here: descriptions and the writer. What does not: captured trees (they come from CPUPLAN_CASES).
May import: cpuplan's model and host.
"""

from .description import Machine, describe, machine_names
from .writing import boot_id, gpu_uuid, write_machine

__all__ = ["Machine", "boot_id", "describe", "gpu_uuid", "machine_names", "write_machine"]
