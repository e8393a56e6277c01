"""The CPUs that this process may run on, and how many of them its quota lets run at once."""

from __future__ import annotations

import os

from ..model.plan import usable_count
from .cgroup import cgroup_cpu_quota

PINNABLE = hasattr(os, "sched_setaffinity")
"""Whether this platform can set CPU affinity."""


def process_mask() -> frozenset[int]:
    """The CPUs of the process's affinity; where the platform has none, all that it counts."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def usable_cpus() -> int:
    """CPUs of the affinity that the cgroup quota lets run at once, at least 1."""
    return usable_count(len(process_mask()), cgroup_cpu_quota())
