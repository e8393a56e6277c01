"""What tells this boot of this host from others, and what one process may run on."""

from __future__ import annotations

from pathlib import Path

from ..model.cpulist import parse_cpu_list
from .root import HostRoot, read_text


def read_boot_id(root: HostRoot) -> str:
    """The kernel's id of this boot; empty where the tree has none.

    Source: proc_sys_kernel(5), /proc/sys/kernel/random/boot_id.
    """
    return read_text(root.proc / "sys" / "kernel" / "random" / "boot_id") or ""


def read_allowed_cpus(status: Path) -> frozenset[int] | None:
    """The CPUs in `Cpus_allowed_list` of a /proc/PID/status file; None where it does not tell.

    Source: proc_pid_status(5).
    """
    for line in (read_text(status) or "").splitlines():
        key, _, value = line.partition(":")
        if key == "Cpus_allowed_list":
            try:
                return parse_cpu_list(value) or None
            except ValueError:
                return None
    return None
