"""What tells this boot of this host from others."""

from __future__ import annotations

from .root import HostRoot, read_text


def read_boot_id(root: HostRoot) -> str:
    """The kernel's id of this boot; empty where the tree has none.

    Source: proc_sys_kernel(5), /proc/sys/kernel/random/boot_id.
    """
    return read_text(root.proc / "sys" / "kernel" / "random" / "boot_id") or ""
