"""Threads that wait until a test is done with them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LIMIT_SECONDS = 20
"""Longest wait for a thread to do what a test asks; reached only where it never will."""


@contextmanager
def waiting_thread() -> Iterator[int]:
    """The kernel id of a thread that lives as long as the block; after it the kernel knows it no more."""
    is_done = threading.Event()
    thread = threading.Thread(target=is_done.wait, daemon=True)
    thread.start()
    thread_id = thread.native_id
    assert thread_id is not None
    try:
        yield thread_id
    finally:
        is_done.set()
        thread.join(LIMIT_SECONDS)
        # join returns when Python is done with the thread, a moment before the kernel is.
        deadline = time.monotonic() + LIMIT_SECONDS
        while Path(f"/proc/self/task/{thread_id}").exists() and time.monotonic() < deadline:
            threading.Event().wait(0.001)
