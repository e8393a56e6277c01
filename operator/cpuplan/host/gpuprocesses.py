"""Processes of this host that hold GPUs: those with a device file of one open.

Source: proc_pid_fd(5), proc_pid_environ(5), proc_pid_cmdline(5); NVIDIA's driver makes /dev/nvidiaN (N is the device
minor), the kernel's DRM /dev/dri/renderDN for AMD, Intel and others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .devices import PlacedDevice, UnplacedDevice, place_device, place_drm_node
from .root import HostRoot, names_in, read_text
from .threads import read_process_ids

_NVIDIA_FILE = re.compile(r"/dev/(nvidia[0-9]{1,5})", re.ASCII)
_RENDER_FILE = re.compile(r"/dev/dri/(renderD[0-9]{1,6})", re.ASCII)


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process with open device files.

    Attributes:
        name: at most 15 characters.
        devices: by the device file's name.
    """

    process_id: int
    name: str
    devices: Mapping[str, PlacedDevice | UnplacedDevice]


@dataclass(frozen=True, slots=True)
class GpuProcesses:
    """The processes with GPUs by id, and how many others could not be looked into (they are another user's)."""

    processes: tuple[GpuProcess, ...]
    hidden_count: int


def read_gpu_processes(root: HostRoot) -> GpuProcesses:
    """The processes that hold a GPU now. What only looked at one holds it too, as long as its file is open."""
    places: dict[str, PlacedDevice | UnplacedDevice] = {}
    found, hidden_count = [], 0
    for process_id in read_process_ids(root):
        names = _device_files(root.proc / str(process_id) / "fd")
        if names is None:
            hidden_count += 1
            continue
        for name in names - places.keys():
            places[name] = place_device(root, name) if name.startswith("nvidia") else place_drm_node(root, name)
        if names:
            comm = read_text(root.proc / str(process_id) / "comm") or "?"
            found.append(GpuProcess(process_id, comm, {name: places[name] for name in sorted(names)}))
    return GpuProcesses(tuple(found), hidden_count)


def read_environment(process_id: int, root: HostRoot) -> dict[str, str]:
    """The variables that a process was started with; empty where they cannot be read."""
    text = read_text(root.proc / str(process_id) / "environ") or ""
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


def _device_files(folder: Path) -> frozenset[str] | None:
    """The names of a process's open GPU files; None where this user may not look."""
    if not os.access(folder, os.R_OK | os.X_OK):
        return None if folder.exists() else frozenset()
    targets = (_target(folder / name) for name in names_in(folder))
    matches = (_NVIDIA_FILE.fullmatch(target) or _RENDER_FILE.fullmatch(target) for target in targets)
    return frozenset(match[1] for match in matches if match)


def _target(link: Path) -> str:
    try:
        return os.readlink(link)  # noqa: PTH115 - the text; the file may be gone, and is not looked at
    except OSError:
        return ""
