"""What tells this boot of this host from others."""

from __future__ import annotations

from pathlib import Path

from .root import HostRoot, read_text


def boot_id_file(root: HostRoot) -> Path:
    """Where the kernel tells it."""
    return root.proc / "sys" / "kernel" / "random" / "boot_id"


def read_boot_id(root: HostRoot) -> str:
    """The kernel's id of this boot; empty where the tree has none.

    Source: proc_sys_kernel(5), /proc/sys/kernel/random/boot_id.
    """
    return read_text(boot_id_file(root)) or ""
