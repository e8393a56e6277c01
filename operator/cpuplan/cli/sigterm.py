"""SIGTERM, for a command that may be PID 1 of its container and waits for something."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the block with SystemExit: PID 1 of a container would not hear it without a handler."""
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


@contextmanager
def held_back() -> Iterator[None]:
    """Within `ended_by_sigterm`: a SIGTERM that comes during this block takes effect at its end.

    A process that the block starts is in its caller's hands by then, for the caller to end.
    """
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda signal_number, _: heard.append(signal_number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
    if heard:
        _leave(heard[0], None)


def _leave(signal_number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + signal_number)
