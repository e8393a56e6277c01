"""Calls a function when this process's interpreter ends, in children of multiprocessing too."""

import atexit
import sys
from collections.abc import Callable


def call_at_exit(function: Callable[[], object]) -> Callable[[], None]:
    """Calls the function once or twice when the interpreter ends; returns an undo.

    A child that multiprocessing has forked leaves without running atexit's functions; it runs multiprocessing's own
    finalizers. Whoever is in such a child has multiprocessing imported.

    Python waits for non-daemon threads before it calls either.
    """
    atexit.register(function)
    multiprocessing_util = sys.modules.get("multiprocessing.util")
    finalizer = None if multiprocessing_util is None else multiprocessing_util.Finalize(None, function, exitpriority=0)

    def undo() -> None:
        atexit.unregister(function)
        if finalizer is not None:
            finalizer.cancel()

    return undo
