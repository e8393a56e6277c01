"""The variables by which libraries size their thread pools (model/pools.py), set where the user has set none.

They are read when a library is loaded, so they must be set before that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, MutableMapping

from ..model.plan import CpuPlan
from ..model.pools import THREAD_VARIABLES


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
