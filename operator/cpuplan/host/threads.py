"""The threads of a process and the CPUs that each may run on.

Source: proc_pid_task(5), proc_pid_status(5), proc_pid_comm(5), proc_pid_stat(5).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ..model.cpulist import parse_cpu_list
from .root import HostRoot, names_in, read_text
from .sysfs import THIS_HOST

ALLOWED_CPUS_FIELD = "Cpus_allowed_list"
"""The line of a `status` file that tells the CPUs of a thread."""

# An unsigned long long of the kernel.
_TICKS = re.compile(r"[0-9]{1,20}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ThreadMask:
    """One thread: its kernel id, its name (at most 15 characters) and the CPUs it may run on."""

    thread_id: int
    name: str
    allowed: frozenset[int]


def read_allowed_cpus(process_id: int | str, root: HostRoot = THIS_HOST) -> frozenset[int] | None:
    """The CPUs that the process's main thread may run on; None where that is not told. `self` is this process."""
    return _allowed_in(root.proc / str(process_id) / "status")


def read_allowed_text(process_id: int | str, root: HostRoot = THIS_HOST) -> str | None:
    """As read_allowed_cpus, the text as it stands in the process's `status`."""
    return _allowed_text_in(root.proc / str(process_id) / "status")


def read_thread_masks(process_id: int | str, root: HostRoot = THIS_HOST) -> tuple[ThreadMask, ...]:
    """The threads of a process by id; those that end meanwhile are left out, empty where there is no process."""
    folder = root.proc / str(process_id) / "task"
    threads = []
    for thread_id in sorted(int(name) for name in names_in(folder) if name.isdecimal()):
        allowed = _allowed_in(folder / str(thread_id) / "status")
        if allowed is not None:
            threads.append(ThreadMask(thread_id, read_text(folder / str(thread_id) / "comm") or "?", allowed))
    return tuple(threads)


def has_thread(thread_id: int, root: HostRoot = THIS_HOST) -> bool:
    """Whether this process has a thread of that id; also told where no more files can be opened."""
    return Path(root.proc, "self", "task", str(thread_id)).exists()


def read_thread_start(thread_id: int, root: HostRoot = THIS_HOST) -> int | None:
    """When a thread of this process started, in clock ticks since boot; None where that is not told.

    With the id it names one thread for good: the kernel gives ids out again. Whether a thread has ended only
    `has_thread` tells: a process that has used up its file descriptors reads nothing.
    """
    stat = read_text(Path(root.proc, "self", "task", str(thread_id), "stat"))
    # The name in parentheses may hold blanks and parentheses; `starttime` is the 20th field after it.
    fields = (stat or "").rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and _TICKS.fullmatch(fields[19]) else None


def read_process_ids(root: HostRoot = THIS_HOST) -> tuple[int, ...]:
    """The ids of all processes that this one can see."""
    return tuple(sorted(int(name) for name in names_in(root.proc) if name.isdecimal()))


def read_cgroup_peers(root: HostRoot = THIS_HOST) -> tuple[int, ...]:
    """The ids of the processes in this process's cgroup, that is, its container; all where that is not told."""
    own = read_text(root.proc / "self" / "cgroup")
    found = read_process_ids(root)
    if own is None:
        return found
    return tuple(process_id for process_id in found if read_text(root.proc / str(process_id) / "cgroup") == own)


def _allowed_in(status: Path) -> frozenset[int] | None:
    text = _allowed_text_in(status)
    try:
        return None if text is None else parse_cpu_list(text) or None
    except ValueError:
        return None


def _allowed_text_in(status: Path) -> str | None:
    for line in (read_text(status) or "").splitlines():
        key, _, value = line.partition(":")
        if key == ALLOWED_CPUS_FIELD:
            return value.strip()
    return None
