"""Ends this process when its parent ends, however that ends: nobody is left behind who spins for an answer."""

import ctypes
import os
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
"""Source: prctl(2), linux/prctl.h."""


def end_with_parent(parent_id: int) -> None:
    """Has the kernel kill this process when the thread that started it ends; ends it now if that is so already.

    Args:
        parent_id: the parent's process id, as the parent sees it.
    """
    prctl = ctypes.CDLL(None).prctl
    prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_id:
        os.kill(os.getpid(), signal.SIGKILL)
