"""The variables by which libraries size their thread pools, set where the user has set none.

They are read when a library is loaded, so they must be set before that. Only pools of computing threads
are named: a pool that waits for input and output is not bound by CPUs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass

from ..model.plan import CpuPlan


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


def threads_per_process(left: int, process_count: int) -> int:
    """Threads for the pools of each of several equal processes that share `left` CPUs, at least 1."""
    return max(1, left // max(1, process_count))


def thread_variables(thread_count: int, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that `environ` lacks, each with the count; what the user has set is never among them."""
    return {v.name: str(thread_count) for v in THREAD_VARIABLES if v.name not in environ}


def set_thread_variables(
    plan: CpuPlan, process_count: int = 1, *, environ: MutableMapping[str, str] = os.environ
) -> Callable[[], None]:
    """Sets the variables that are not set, for this process and what it starts from now on.

    Args:
        plan: whose `left` CPUs the pools share.
        process_count: how many processes with such pools the deployment has.
        environ: where they are set.

    Returns:
        The undo: removes what was set here and has not been changed since.
    """
    chosen = thread_variables(threads_per_process(plan.left, process_count), environ)
    environ.update(chosen)

    def undo() -> None:
        for name, value in chosen.items():
            if environ.get(name) == value:
                del environ[name]

    return undo
