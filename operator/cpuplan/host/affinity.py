"""The CPUs that this process may run on, and how many of them its quota lets run at once."""

from __future__ import annotations

import os

from ..model.plan import usable_count
from .cgroup import cgroup_cpu_quota, own_mountinfo
from .root import HostRoot
from .sysfs import THIS_HOST
from .threads import read_allowed_cpus

PINNABLE = hasattr(os, "sched_setaffinity")
"""Whether this platform can set CPU affinity."""


def process_mask() -> frozenset[int]:
    """The CPUs of the process's affinity; where the platform has none, all that it counts."""
    try:
        return frozenset(os.sched_getaffinity(0))
    except OSError:  # a seccomp filter; procfs tells the same
        return read_allowed_cpus("thread-self") or frozenset(range(os.cpu_count() or 1))
    except AttributeError:
        return frozenset(range(os.cpu_count() or 1))


def visible_quota(root: HostRoot = THIS_HOST) -> float | None:
    """CPUs of the tightest limit that this process sees on itself; None without one."""
    return cgroup_cpu_quota(root.cgroup, root.proc / "self" / "cgroup", mountinfo=own_mountinfo(root))


def usable_cpus() -> int:
    """CPUs of the affinity that the cgroup quota lets run at once, at least 1."""
    return usable_count(len(process_mask()), visible_quota())
