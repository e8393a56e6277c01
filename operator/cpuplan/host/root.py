"""Where the kernel's trees are, and how their small files are read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ..model.errors import HostReadError

MOST_BYTES = 1 << 20
"""Where reading stops, so that no file of a strange tree fills the memory. The longest file here is the mount
table of a node that runs hundreds of containers, at a few hundred bytes a line; a CPU list of 8192 CPUs,
every other one set, has 40 KiB."""

ATTRIBUTE_END_BYTES = 1 << 12
"""The smallest page of any Linux: no kernel answers with fewer bytes of an attribute that is longer."""

_READ_BYTES = 1 << 16

# A planted FIFO must not block.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


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

    def kernel_name(self, path: Path | str) -> str:
        """A path below one of these trees as the host's own kernel calls it; any other text as it is."""
        for tree, name in ((self.cgroup, "/sys/fs/cgroup"), (self.sys, "/sys"), (self.proc, "/proc")):
            if Path(path).is_relative_to(tree):
                return str(Path(name) / Path(path).relative_to(tree))
        return str(path)

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
    content = read_content(path)
    return None if content is None else content.decode("utf-8", "replace").strip()


def read_content(path: Path | str, *, end_bytes: int = 1) -> bytes | None:
    """A file up to MOST_BYTES; None where it is missing or cannot be read.

    One read is not enough for every file: procfs answers with the whole records (lines of a mount table) that
    fit its page, and sysfs with at most a page of a long CPU list.

    Args:
        path: the file.
        end_bytes: an answer shorter than this is the last. ATTRIBUTE_END_BYTES saves a third of the time of a
            sysfs attribute, which is handed out whole, or page by page where it is longer.
    """
    try:
        descriptor = os.open(path, _FLAGS)
    except (OSError, ValueError):
        return None
    try:
        content = more = os.read(descriptor, ATTRIBUTE_END_BYTES)
        while len(more) >= end_bytes and len(content) < MOST_BYTES:
            more = os.read(descriptor, min(_READ_BYTES, MOST_BYTES - len(content)))
            content += more
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return content


def names_in(folder: Path | str) -> list[str]:
    """The names in a folder, sorted; empty where it is missing or cannot be read."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names, not paths: half the cost on a large sysfs
    except OSError:
        return []
