"""Timer slack of the calling thread: how much the kernel may stretch its naps."""

import ctypes
from typing import Final

PR_SET_TIMERSLACK: Final = 29
"""Source: prctl(2), linux/prctl.h."""


def set_timer_slack(ns: int = 1000) -> bool:
    """Sets the calling thread's timer slack in ns (at least 1; 0 would restore the default, usually 50 us).

    Returns:
        True if the kernel accepted it.
    """
    prctl = ctypes.CDLL(None).prctl
    prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)
    return bool(prctl(PR_SET_TIMERSLACK, max(1, int(ns)), 0, 0, 0) == 0)
