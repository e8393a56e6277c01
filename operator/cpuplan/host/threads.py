"""The threads of a process and the CPUs that each may run on.

Source: proc_pid_status(5), proc_pid_task(5), proc_pid_comm(5).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..model.cpulist import parse_cpu_list
from .root import HostRoot, names_in, read_text

_ALLOWED = "Cpus_allowed_list:"


@dataclass(frozen=True, slots=True)
class ThreadMask:
    """One thread: its kernel id, its name (at most 15 characters) and the CPUs it may run on."""

    thread_id: int
    name: str
    allowed: frozenset[int]


def read_process_mask(process_id: int | str, root: HostRoot = HostRoot()) -> frozenset[int] | None:  # noqa: B008
    """The CPUs that the process's main thread may run on; None where it cannot be read. `self` is this process."""
    return _allowed_in(read_text(f"{root.proc}/{process_id}/status"))


def read_thread_masks(process_id: int | str, root: HostRoot = HostRoot()) -> tuple[ThreadMask, ...]:  # noqa: B008
    """The threads of a process by id; those that end meanwhile are left out, empty where there is no process."""
    folder = f"{root.proc}/{process_id}/task"
    threads = []
    for thread_id in sorted(int(name) for name in names_in(folder) if name.isdecimal()):
        allowed = _allowed_in(read_text(f"{folder}/{thread_id}/status"))
        if allowed is not None:
            threads.append(ThreadMask(thread_id, read_text(f"{folder}/{thread_id}/comm") or "?", allowed))
    return tuple(threads)


def _allowed_in(status: str | None) -> frozenset[int] | None:
    for line in (status or "").splitlines():
        if line.startswith(_ALLOWED):
            try:
                return parse_cpu_list(line.removeprefix(_ALLOWED).strip())
            except ValueError:
                return None
    return None
