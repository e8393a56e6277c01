"""HostPage: the library, the page and who may store to it."""

import ctypes
from typing import Final

from hostflag_native.durations import as_ns
from hostflag_native.errors import StreamSyncError
from hostflag_native.layout import (
    OFF_CLAIMED,
    OFF_CONSUMED,
    OFF_GATHERED,
    OFF_RELEASED,
    OFF_REPLY,
    PAGE_ALIGNMENT_BYTES,
    PAGE_BYTES,
)
from hostflag_native.library import load_hostflag
from hostflag_native.process_generation import process_generation
from hostflag_native.symbols import bind_hostflag

GRACE_NS: Final = 10_000_000
"""How long a failing call waits for a consumer or claimant, in ns: as dsv41_hf_fail_release, a parked stream waits."""

GRACE_NAP_NS: Final = 20_000
"""Nap while it waits, in ns."""


class HostPage:
    """One page, mapped, with the library that works on it.

    Fork: a child may read through an inherited object, since the page is shared, and never stores through it.
    """

    def __init__(self, lib_path: str, spin_us: float, nap_us: float, page: int) -> None:
        self._generation = process_generation()
        self.spin_us = spin_us
        self.nap_us = nap_us
        self.spin_ns = max(0, as_ns(spin_us, 1_000_000))
        self.nap_ns = max(0, as_ns(nap_us, 1_000_000))
        if page % PAGE_ALIGNMENT_BYTES != 0:
            raise StreamSyncError(f"page {page:#x} is not aligned to {PAGE_ALIGNMENT_BYTES} bytes; map it with mmap")
        self.lib, self.lib_origin = load_hostflag(lib_path)
        # Short calls keep the GIL: letting go of it would mean waiting for it again while other Python threads run.
        keeping_gil = ctypes.PyDLL(self.lib._name, handle=self.lib._handle)  # noqa: SLF001  ctypes has no other name
        self._short = bind_hostflag(keeping_gil, self.lib_origin)
        self.owns_page = page == 0
        self.page = page or self.lib.dsv41_hf_alloc(PAGE_BYTES) or 0
        if self.page == 0:
            raise StreamSyncError(f"cannot allocate a page of {PAGE_BYTES} bytes: out of memory or address space")
        self.mlock_errno = self.lib.dsv41_hf_lock(self.page, PAGE_BYTES)
        self.gathered_host = self.page + OFF_GATHERED
        self.released_host = self.page + OFF_RELEASED
        self.claimed_host = self.page + OFF_CLAIMED
        self.consumed_host = self.page + OFF_CONSUMED
        self.reply_host = self.page + OFF_REPLY

    def values(self) -> tuple[int, int, int]:
        """(gathered, released, claimed) now."""
        return self._load(self.gathered_host), self._load(self.released_host), self._load(self.claimed_host)

    def _forget_page(self) -> None:
        """Makes every address 0, and frees the page if it is this object's and not inherited."""
        page, self.page = self.page, 0
        self.gathered_host = self.released_host = self.claimed_host = self.consumed_host = self.reply_host = 0
        if self.owns_page and not self._is_inherited():
            self.lib.dsv41_hf_free(page)

    def _is_inherited(self) -> bool:
        return self._generation != process_generation()

    def _check_open(self) -> None:
        if self.page == 0:
            raise StreamSyncError("this HostFlagCore is closed; make a new one")

    def _check_may_store(self) -> None:
        self._check_open()
        if self._is_inherited():
            raise StreamSyncError(
                "this HostFlagCore was inherited through fork, and a child never stores through its parent's object; "
                "make one in the child with page=<the same address>"
            )

    def _load(self, word: int) -> int:
        self._check_open()
        return int(self._short.dsv41_hf_load(word))

    def _ends_within_grace(self, word: int, value: int) -> bool:
        """True once the word is >= value, False after 10 ms; the GIL is free meanwhile."""
        return bool(self.lib.dsv41_hf_wait_geq(word, value, GRACE_NS, 0, GRACE_NAP_NS) == 0)
