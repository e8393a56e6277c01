"""Reading a 384-CPU, 8-GPU host, against only opening and reading the same files once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from cpuplan.host.root import HostRoot
from cpuplan.host.sysfs import read_topology
from tests.machines import write_machine

from .timing import Figure, best_of_each_ms

MACHINE = "mi300x-server"


def figures() -> list[Figure]:
    """The cost of the reader, of the plain reads, and their ratio."""
    with TemporaryDirectory() as folder:
        root = write_machine(MACHINE, Path(folder))
        files = _files_read(root)
        reader, plain = best_of_each_ms([lambda: read_topology(root), lambda: _read_once(files)])
    return [
        Figure(f"reading {MACHINE}: the reader", reader, "ms"),
        Figure(f"reading {MACHINE}: its {len(files)} files opened and read once", plain, "ms"),
        Figure("the reader against the plain reads", reader / plain, "times", 1.5),
    ]


def _files_read(root: HostRoot) -> list[str]:
    """The paths that the reader opens and that exist, each once."""
    opened: list[str] = []
    real_open = os.open

    def recording_open(path: str, flags: int) -> int:
        opened.append(str(path))
        return real_open(path, flags)

    with patch("os.open", recording_open):
        read_topology(root)
    return [path for path in dict.fromkeys(opened) if Path(path).exists()]


def _read_once(files: Sequence[str]) -> None:
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        os.read(descriptor, 1 << 16)
        os.close(descriptor)
