"""The machine that figures were measured on: they mean nothing without it."""

import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostflag_native.exchange import Cpus
from hostflag_native.selftest.environment import CgroupFiles, cpu_limit, throttling


@dataclass(frozen=True, slots=True)
class Machine:
    """What bears on a hand-off's speed.

    Attributes:
        cpu_model: as /proc/cpuinfo says; the architecture where it does not.
        hypervisor: True if the CPU says that it is virtual; None where it does not say (only x86 does).
        cpu_count: CPUs online.
        cpus: the two CPUs under measurement.
        core_distance: how the two are related: "one CPU", "one core", "one socket", "two sockets", or "unknown".
        cpu_limit: the cgroup's quota in CPUs; None without one.
    """

    cpu_model: str
    hypervisor: bool | None
    kernel: str
    python: str
    cpu_count: int
    cpus: Cpus
    core_distance: str
    cpu_limit: float | None

    def as_json(self) -> dict[str, Any]:
        """The same, in JSON's names."""
        return {
            "cpuModel": self.cpu_model,
            "hypervisor": self.hypervisor,
            "kernel": self.kernel,
            "python": self.python,
            "cpuCount": self.cpu_count,
            "cpus": list(self.cpus),
            "coreDistance": self.core_distance,
            "cpuLimit": self.cpu_limit,
        }


@dataclass(frozen=True, slots=True)
class MachineFiles:
    """Where the machine is read from; tests put trees of files there."""

    proc_root: Path = Path("/proc")
    sysfs_root: Path = Path("/sys")
    cgroup_root: Path = Path("/sys/fs/cgroup")


def read_machine(files: MachineFiles, cpus: Cpus) -> Machine:
    """The machine, as far as its files tell."""
    fields = _cpuinfo(files.proc_root / "cpuinfo")
    flags = fields.get("flags")
    return Machine(
        cpu_model=fields.get("model name") or platform.machine(),
        hypervisor=None if flags is None else "hypervisor" in flags.split(),
        kernel=platform.release(),
        python=sys.version.split()[0],
        cpu_count=os.cpu_count() or 1,
        cpus=cpus,
        core_distance=_core_distance(files.sysfs_root, cpus),
        cpu_limit=cpu_limit(CgroupFiles(files.proc_root, files.cgroup_root)),
    )


def throttled_us(files: MachineFiles) -> int:
    """How long the cgroup's quota has stopped this process so far, in us; 0 without a quota."""
    told = throttling(CgroupFiles(files.proc_root, files.cgroup_root))
    return told.get("throttled_usec", told.get("throttled_time", 0) // 1000)


def stolen_seconds(files: MachineFiles, cpus: Cpus) -> float:
    """How long the hypervisor has kept the CPUs from running what was runnable, in s since boot; 0 where it hides it.

    Source: proc_stat(5), the eighth number of a cpuN line.
    """
    lines = (line.split() for line in _text(files.proc_root / "stat").splitlines())
    wanted = {f"cpu{cpu}" for cpu in cpus}
    ticks = sum(int(words[8]) for words in lines if len(words) > 8 and words[0] in wanted)
    return ticks / os.sysconf("SC_CLK_TCK")


def _cpuinfo(path: Path) -> dict[str, str]:
    """The first processor's fields."""
    first, _, _ = _text(path).partition("\n\n")
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _core_distance(sysfs_root: Path, cpus: Cpus) -> str:
    if cpus[0] == cpus[1]:
        return "one CPU"
    sockets, cores = (
        {_text(sysfs_root / f"devices/system/cpu/cpu{cpu}/topology/{name}").strip() for cpu in cpus}
        for name in ("physical_package_id", "core_id")
    )
    if "" in sockets | cores:
        return "unknown"
    if len(sockets) == 2:
        return "two sockets"
    return "one core" if len(cores) == 1 else "one socket"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
