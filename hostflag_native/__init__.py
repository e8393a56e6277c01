"""Hand-off between a device stream and a host proxy through one page of host memory.

What belongs here: the C library and its binding, the self-test, the benchmark. What does not: anything of CUDA or torch
beyond the self-test's own driver binding, and anything of cpuplan. May import: the standard library and numpy.
"""

from hostflag_native.core import HostFlagCore
from hostflag_native.errors import StreamStuckError, StreamSyncError
from hostflag_native.layout import (
    _M32,
    _V,
    CU_MEMHOSTREGISTER_DEVICEMAP,
    CU_MEMHOSTREGISTER_PORTABLE,
    CU_STREAM_WAIT_VALUE_GEQ,
    CU_STREAM_WRITE_VALUE_DEFAULT,
    FAR_AHEAD,
    OFF_CLAIMED,
    OFF_CONSUMED,
    OFF_GATHERED,
    OFF_RELEASED,
    OFF_REPLY,
    PAGE_BYTES,
    REPLY_CAPACITY,
)
from hostflag_native.library import load_hostflag
from hostflag_native.native_library import HOSTFLAG_LIB
from hostflag_native.symbols import HOSTFLAG_VERSION
from hostflag_native.timer_slack import PR_SET_TIMERSLACK, set_timer_slack

__all__ = [
    "CU_MEMHOSTREGISTER_DEVICEMAP",
    "CU_MEMHOSTREGISTER_PORTABLE",
    "CU_STREAM_WAIT_VALUE_GEQ",
    "CU_STREAM_WRITE_VALUE_DEFAULT",
    "FAR_AHEAD",
    "HOSTFLAG_LIB",
    "HOSTFLAG_VERSION",
    "OFF_CLAIMED",
    "OFF_CONSUMED",
    "OFF_GATHERED",
    "OFF_RELEASED",
    "OFF_REPLY",
    "PAGE_BYTES",
    "PR_SET_TIMERSLACK",
    "REPLY_CAPACITY",
    "_M32",
    "_V",
    "HostFlagCore",
    "StreamStuckError",
    "StreamSyncError",
    "load_hostflag",
    "set_timer_slack",
]
