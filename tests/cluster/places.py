"""Where the cluster keeps its files: a cache that stays, a state folder and a run folder that `down` removes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
"""The root of the project's working tree."""

HERE = Path(__file__).resolve().parent
"""The folder of this package."""


def cache_dir() -> Path:
    """The folder for what is slow to make: programs, images, wheels. CPUPLAN_CACHE says another one."""
    named = os.environ.get("CPUPLAN_CACHE")
    if named:
        return Path(named).resolve()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").resolve() / "cpuplan"


def state_dir() -> Path:
    """The folder for what lives as long as a cluster (engine data, kubeconfigs, logs). CPUPLAN_STATE says another."""
    named = os.environ.get("CPUPLAN_STATE")
    if named:
        return Path(named).resolve()
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state").resolve() / "cpuplan"


def logs_dir() -> Path:
    """The folder of the logs of all steps, which exists afterwards."""
    folder = state_dir() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Holds the lock of that name, in the cache folder, for the block; a second run waits.

    The kernel drops it when the holder dies, so a killed run leaves no lock behind.
    """
    folder = cache_dir() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
