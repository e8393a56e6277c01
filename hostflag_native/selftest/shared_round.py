"""The device part's page and the round queued last on it, in memory that the test and its supervisor share."""

import ctypes
import mmap
from typing import Final

from hostflag_native.layout import _M32, PAGE_BYTES

_IS_QUEUED: Final = 1 << 32
"""Stands above the 32 bits of the round: one store says both."""


class SharedRound:
    """A page at `address`, mapped shared before the test is forked, and a note of what a stream may be parked in.

    The note lies beside the page: the supervisor reads it when the test itself can say nothing any more.
    """

    def __init__(self) -> None:
        self._mapping = mmap.mmap(-1, PAGE_BYTES + mmap.PAGESIZE)  # anonymous and MAP_SHARED, zeroed
        self._page = ctypes.c_char.from_buffer(self._mapping)
        self._note = ctypes.c_uint64.from_buffer(self._mapping, PAGE_BYTES)
        self.address = ctypes.addressof(self._page)

    def note_queued(self, round_number: int) -> None:
        """A stream waits for the release of this round, or will."""
        self._note.value = _IS_QUEUED | round_number & _M32

    def note_idle(self) -> None:
        """No stream waits."""
        self._note.value = 0

    def queued(self) -> int | None:
        """The round that a stream may be parked in, None where none is queued."""
        note = self._note.value
        return note & _M32 if note & _IS_QUEUED else None
