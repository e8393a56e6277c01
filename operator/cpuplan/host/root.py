"""Where the kernel's trees are, and how their small files are read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ..model.errors import HostReadError

# Kernel text files are pages; the longest here is the CPU list of a host with 8192 CPUs, every other one
# set (about 40 KiB). Reading stops there, so that no file of a strange tree fills the memory.
MOST_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class HostRoot:
    """The folders that stand for /sys, /proc and /sys/fs/cgroup, of this host or of a copied tree."""

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")

    @classmethod
    def at(cls, folder: Path) -> HostRoot:
        """The trees below one folder that holds `sys` and `proc`."""
        return cls(folder / "sys", folder / "proc", folder / "sys" / "fs" / "cgroup")

    @property
    def cpu_folder(self) -> Path:
        """Where the CPUs are described."""
        return self.sys / "devices" / "system" / "cpu"

    @property
    def node_folder(self) -> Path:
        """Where the NUMA nodes are described."""
        return self.sys / "devices" / "system" / "node"

    @property
    def pci_folder(self) -> Path:
        """Where the PCI functions are described."""
        return self.sys / "bus" / "pci" / "devices"

    @property
    def nvidia_folder(self) -> Path:
        """Where NVIDIA's driver describes its GPUs."""
        return self.proc / "driver" / "nvidia" / "gpus"

    def require_sysfs(self) -> None:
        """Refuses a root that is no sysfs, before anything is planned from nothing.

        Raises:
            HostReadError: the CPUs' folder is missing or cannot be listed.
        """
        try:
            os.listdir(self.cpu_folder)  # noqa: PTH208 - the error of os.listdir names the folder
        except OSError as error:
            raise HostReadError(
                f"{self.sys} is no readable sysfs: {self.cpu_folder}: {error.strerror}; "
                "expected a folder with devices/system/cpu (see --sysfs-root)"
            ) from error


def read_text(path: Path | str) -> str | None:
    """The stripped text of a small file; None where it is missing or cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    try:
        return os.read(descriptor, MOST_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return None
    finally:
        os.close(descriptor)


def names_in(folder: Path | str) -> list[str]:
    """The names in a folder, sorted; empty where it is missing or cannot be read."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names, not paths: half the cost on a large sysfs
    except OSError:
        return []
