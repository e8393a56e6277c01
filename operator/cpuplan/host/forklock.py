"""Locks that neither a fork nor a signal handler can leave taken for ever."""

from __future__ import annotations

import os
import threading
from threading import RLock


def fork_safe_lock() -> RLock:
    """A lock for a module, free in every forked child.

    A plain lock that another thread holds while a thread forks stays locked in the child, where nobody is left
    to release it; so every fork waits for the lock. It is reentrant: a signal handler runs on the main thread,
    which may hold it.
    """
    lock = threading.RLock()
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock
