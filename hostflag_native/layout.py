"""The page that stream and proxy share (a fixed ABI), and the arithmetic of its round numbers.

Offsets are in bytes. Words are 32 bits, counted modulo 2^32 and compared cyclically.
"""

import ctypes
from typing import Final

PAGE_BYTES: Final = 65_536
PAGE_ALIGNMENT_BYTES: Final = 4_096
OFF_GATHERED: Final = 0
OFF_RELEASED: Final = 128
OFF_CLAIMED: Final = 256
OFF_CONSUMED: Final = 384
OFF_REPLY: Final = 4_096
REPLY_CAPACITY: Final = PAGE_BYTES - OFF_REPLY

FAR_AHEAD: Final = 1 << 30
"""How far ahead fail_ahead releases, in rounds: half of what a cyclic comparison can tell."""

ALREADY_FAR_AHEAD: Final = 1 << 29
"""From this distance on claimed counts as failed ahead: a second step would make it 2^31, where ahead is behind."""

CU_STREAM_WAIT_VALUE_GEQ: Final = 0x0
CU_STREAM_WRITE_VALUE_DEFAULT: Final = 0x0
CU_MEMHOSTREGISTER_PORTABLE: Final = 0x1
CU_MEMHOSTREGISTER_DEVICEMAP: Final = 0x2
"""Flags of cuda.h that an engine needs to register the page and to queue the stream's half."""

_M32: Final = 0xFFFF_FFFF
_V = ctypes.c_void_p


def is_geq(a: int, b: int) -> bool:
    """True if round a is round b or a later one."""
    return (a - b) & _M32 < 1 << 31


def is_ahead(v: int, w: int) -> bool:
    """True if round v is later than round w; at a distance of exactly 2^31 neither is."""
    return 0 < (v - w) & _M32 < 1 << 31
