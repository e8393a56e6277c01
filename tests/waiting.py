"""Waiting for what another thread or process brings about."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def until(condition: Callable[[], bool], *, limit_seconds: float = 20.0) -> None:
    """Returns as soon as the condition holds; AssertionError when it does not within the limit."""
    never = threading.Event()
    ends_at = time.monotonic() + limit_seconds
    while not condition():
        assert time.monotonic() < ends_at, f"the condition did not hold within {limit_seconds:g} s"
        never.wait(0.005)
