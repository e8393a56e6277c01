"""What the process finds around it that bears on the hand-off: CPUs, quota, throttling, memory lock, timer slack."""

import ctypes
import os
import platform
import re
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_PR_GET_TIMERSLACK: Final = 30
"""Source: prctl(2), linux/prctl.h."""

_DRIVER_VERSION: Final = re.compile(r"\b\d{2,}(?:\.\d+)+\b")

_REPORTED_VARIABLES: Final = (
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "CUDA_MODULE_LOADING",
)


@dataclass(frozen=True, slots=True)
class CgroupFiles:
    """Where a process reads about its own cgroup; tests put a tree of files there."""

    proc_root: Path = Path("/proc")
    cgroup_root: Path = Path("/sys/fs/cgroup")

    def chain(self) -> list[Path]:
        """This process's cgroup directory with the cpu controller, and its parents up to the mounted root."""
        for line in _text(self.proc_root / "self" / "cgroup").splitlines():
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if controllers == "":
                base = self.cgroup_root
            elif "cpu" in controllers.split(","):
                base = self.cgroup_root / controllers
                base = base if base.is_dir() else self.cgroup_root / "cpu"
            else:
                continue
            inside = Path(path.lstrip("/"))
            found = [base / part for part in (inside, *inside.parents)]
            return [directory for directory in found if directory.is_dir()] or [base]
        return [self.cgroup_root]


def cpu_limit(files: CgroupFiles) -> float | None:
    """The least CPU quota of the cgroup and all its parents, in CPUs; None without one."""
    limits = [limit for directory in files.chain() if (limit := _own_limit(directory)) is not None]
    return min(limits, default=None)


def throttling(files: CgroupFiles) -> dict[str, int]:
    """nr_periods, nr_throttled and throttled_usec (v1: throttled_time, ns) of the cgroup's cpu.stat, as far as told."""
    wanted = {"nr_periods", "nr_throttled", "throttled_usec", "throttled_time"}
    pairs = [line.split() for line in _text(files.chain()[0] / "cpu.stat").splitlines()]
    return {p[0]: int(p[1]) for p in pairs if len(p) == 2 and p[0] in wanted and p[1].isdigit()}


def describe_environment(files: CgroupFiles) -> dict[str, Any]:
    """Everything above as one JSON object."""
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return {
        "kernel": platform.release(),
        "nvidiaDriver": nvidia_driver(files),
        "machine": platform.machine(),
        "cpusAllowed": sorted(os.sched_getaffinity(0))[:64],
        "cpusAllowedCount": len(os.sched_getaffinity(0)),
        "cpuLimit": cpu_limit(files),
        "cpuStat": throttling(files),
        "memlockLimitBytes": [None if limit == resource.RLIM_INFINITY else limit for limit in (soft, hard)],
        "timerSlackNs": timer_slack_ns(),
        "variables": {name: os.environ[name] for name in _REPORTED_VARIABLES if name in os.environ},
    }


def nvidia_driver(files: CgroupFiles) -> str | None:
    """The version of the loaded NVIDIA kernel module, as in 550.54.15; None without one.

    The first line of its file: "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build …".
    """
    first_line = _text(files.proc_root / "driver" / "nvidia" / "version").partition("\n")[0]
    found = _DRIVER_VERSION.search(first_line)
    return found.group() if found is not None else None


def timer_slack_ns() -> int:
    """The calling thread's timer slack in ns."""
    return int(ctypes.CDLL(None).prctl(_PR_GET_TIMERSLACK, 0, 0, 0, 0))


def _own_limit(directory: Path) -> float | None:
    """Quota of one cgroup in CPUs: cpu.max (v2) or cpu.cfs_quota_us (v1); None where there is none or it is odd."""
    words = _text(directory / "cpu.max").split()
    if not words:
        words = [_text(directory / "cpu.cfs_quota_us").strip(), _text(directory / "cpu.cfs_period_us").strip()]
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]) > 0:
        return int(words[0]) / int(words[1])
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
