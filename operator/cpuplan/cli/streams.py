"""Standard output and standard error as they come: closed, full, without a reader, with a small character set.

An engine that `cpuplan run` starts must start whatever became of its log.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import TextIO


def prepare_streams() -> None:
    """Makes this process's streams ones that every text can be written to.

    1. A stream that the starter has closed leads nowhere. Python has None there, and writes what is meant for a
       missing standard error to standard output.
    2. A character that standard output cannot encode is written as its escape, as standard error does it.
    """
    if sys.stdout is None:
        sys.stdout = _nowhere()
    if sys.stderr is None:
        sys.stderr = _nowhere()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def drop_output() -> None:
    """Lets standard output lead nowhere from now on: Python would complain again when it closes it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def put(text: str) -> None:
    """Writes text to standard output, or nothing where that is not possible."""
    try:
        print(text, flush=True)
    except OSError:
        drop_output()


def tell(line: str) -> None:
    """Writes one line to standard error, or nothing where that is not possible (a full disk, no reader)."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        # What stays in its buffer would be tried again at the end, and change the exit code.
        sys.stderr = _nowhere()


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - stays open as long as the process
