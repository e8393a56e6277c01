"""Thread pools: the variables by which libraries size them, and what is known of a container's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class ThreadVariable:
    """A variable that holds a number of threads, who reads it, and where that is documented."""

    name: str
    reader: str
    source: str


THREAD_VARIABLES = (
    ThreadVariable("OMP_NUM_THREADS", "OpenMP (PyTorch, oneDNN, SciPy)", "OpenMP 5.2, 21.1.2"),
    ThreadVariable("OPENBLAS_NUM_THREADS", "OpenBLAS (NumPy)", "OpenBLAS README, Setting the number of threads"),
    ThreadVariable("MKL_NUM_THREADS", "Intel MKL", "oneMKL developer guide, oneMKL-specific environment variables"),
    ThreadVariable("BLIS_NUM_THREADS", "BLIS, AOCL-BLAS", "BLIS docs/Multithreading.md"),
    ThreadVariable("VECLIB_MAXIMUM_THREADS", "Accelerate", "Apple, vecLib/BLAS"),
    ThreadVariable("NUMEXPR_NUM_THREADS", "NumExpr", "NumExpr user guide, Threadpool configuration"),
    ThreadVariable("NUMEXPR_MAX_THREADS", "NumExpr", "NumExpr user guide, Threadpool configuration"),
    ThreadVariable("NUMBA_NUM_THREADS", "Numba", "Numba reference manual, Environment variables"),
    ThreadVariable("OPENCV_FOR_THREADS_NUM", "OpenCV", "OpenCV environment variable reference, core/parallel_for"),
    ThreadVariable("RAYON_NUM_THREADS", "Rayon (tokenizers, safetensors)", "docs.rs/rayon, ThreadPoolBuilder"),
    ThreadVariable("POLARS_MAX_THREADS", "Polars", "Polars API reference, thread_pool_size"),
    ThreadVariable("TOKIO_WORKER_THREADS", "Tokio", "docs.rs/tokio, runtime::Builder::worker_threads"),
    ThreadVariable("GOMAXPROCS", "Go", "pkg.go.dev/runtime, Environment Variables"),
    ThreadVariable("TORCHINDUCTOR_COMPILE_THREADS", "torch.compile", "torch/_inductor/config.py, compile_threads"),
)
"""Variables of pools of computing threads: a pool that waits for input and output is not bound by CPUs."""

THREAD_VARIABLE_NAMES = frozenset(variable.name for variable in THREAD_VARIABLES)


@dataclass(frozen=True, slots=True)
class VisiblePools:
    """What can be seen of a container's or a process's thread pools from outside.

    Attributes:
        thread_counts: by variable, the threads it asks for; None where the value cannot be seen or is no number.
        is_sized: it sizes its pools itself (`cpuplan run`), or may have variables that cannot be seen.
    """

    thread_counts: Mapping[str, int | None] = field(default_factory=dict)
    is_sized: bool = False


def visible_pools(
    variables: Mapping[str, str | None], words: Sequence[str] = (), *, has_hidden_variables: bool = False
) -> VisiblePools:
    """What variables and a command line say of pools.

    Args:
        variables: of the environment; None where the value cannot be seen.
        words: of the command line.
        has_hidden_variables: there may be others.
    """
    counts = {
        name: int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) <= 6 else None
        for name, text in variables.items()
        if name in THREAD_VARIABLE_NAMES
    }
    runs_ours = any(first.rpartition("/")[2] == "cpuplan" and then == "run" for first, then in pairwise(words))
    return VisiblePools(counts, runs_ours or has_hidden_variables)
