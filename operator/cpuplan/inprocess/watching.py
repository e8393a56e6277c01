"""A background thread that does one thing again and again until it is undone."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable


def start_watch(look: Callable[[], object], every_seconds: float) -> Callable[[], None]:
    """Calls `look` at once and then every so often, on a daemon thread that a forked child does not inherit.

    What `look` raises goes to threading.excepthook, and the watch goes on.

    Returns:
        The undo: ends the watch; `look` does not run any more once it returns (unless `look` itself calls it).
        In a forked child there is nothing to end.
    """
    stopped = threading.Event()
    process_id = os.getpid()

    def watch() -> None:
        while not stopped.is_set():
            try:
                look()
            except Exception:  # noqa: BLE001 - a foreign callback must not end the watch; its error is not hidden either
                _report()
            stopped.wait(every_seconds)

    thread = threading.Thread(target=watch, name="cpuplan-watch", daemon=True)
    thread.start()

    def undo() -> None:
        if os.getpid() != process_id:
            # The event may have been in use when the process forked: its lock would then never be free here.
            return
        stopped.set()
        if thread is not threading.current_thread():
            thread.join()

    return undo


def _report() -> None:
    kind, value, trace = sys.exc_info()
    if kind is not None:
        threading.excepthook(threading.ExceptHookArgs((kind, value, trace, threading.current_thread())))
