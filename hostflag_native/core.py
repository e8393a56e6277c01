"""HostFlagCore: the host's half of the hand-off, as engines use it and subclass it.

One class, longer than most modules here: engines bind to all of its names by subclassing it.
"""

import ctypes
import operator
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from hostflag_native.at_exit import call_at_exit
from hostflag_native.durations import as_ns
from hostflag_native.errors import StreamSyncError
from hostflag_native.layout import _M32, ALREADY_FAR_AHEAD, FAR_AHEAD, REPLY_CAPACITY, is_ahead, is_geq
from hostflag_native.page import HostPage
from hostflag_native.process_watch import ProcessWatch, watch_process_end

if TYPE_CHECKING:
    import numpy.typing as npt

_SLICE_NS: Final = 100_000_000
"""The longest stay in one C call while waiting, in ns: Python runs signal handlers (Ctrl-C) between calls."""

_MIN_POLL_NS: Final = 50_000
"""The watchdog's shortest poll, in ns: below it the polling itself costs percents of a CPU."""


_MAX_POLL_NS: Final = 100_000_000
"""Its longest, in ns: stopping it takes a poll."""

_IDLE_AFTER_NS: Final = 100_000_000
"""Without a round for so long, in ns, a wait is idle and naps longer."""

_IDLE_NAPS_PER_DEADLINE: Final = 100
"""An idle nap takes at most one part in so many of the watchdog's deadline."""


class HostFlagCore(HostPage):
    """The page, its words, and the watchdog.

    Threads: every method may be called from any thread, except attach, stop_watchdog, reset and close, which one
    thread at a time may call, and close only when no other thread is in a call.

    Fork: a child may read through an inherited object (the page is shared), and never stores through it: publish,
    consumed, release, attach, reset and watch_proxy raise StreamSyncError there, fail_all and fail_ahead return
    False, the watchdog counts as not running, close forgets the page without freeing it. A child that takes part
    makes an object of its own on the same page.
    """

    cuda_free_proxy: ClassVar[bool] = True

    longest_idle_nap_us: ClassVar[float] = 1000
    """How long wait_gathered naps at a time when no round has come for 100 ms, in us; 0: never longer than nap_us."""

    def __init__(self, lib_path: str = "", spin_us: float = 1000, nap_us: float = 0, page: int = 0) -> None:
        """Finds the library and allocates the page, or uses the caller's.

        Args:
            lib_path: the library; empty: see load_hostflag.
            spin_us: how long wait_gathered spins before it naps, in us.
            nap_us: how long it naps at a time, in us; 0: it yields the CPU instead.
            page: address of a mapped page of PAGE_BYTES, 4,096-aligned, that the caller owns; its words are kept as
                they are. 0: allocate one, zeroed, and free it in close().

        Raises:
            StreamSyncError: no library, an unaligned page, or no memory.
        """
        super().__init__(lib_path, spin_us, nap_us, page)
        self.reply_bytes = REPLY_CAPACITY
        self.fail_status = -1
        self.deadline_ms: float = 0
        self._idle_ns = 0
        self._watchdog: int | None = None
        self._watchdog_lock = threading.RLock()
        self._watches: set[ProcessWatch] = set()
        self._forget_exit: Callable[[], None] | None = None

    # ---- the proxy's half ----

    def wait_gathered(self, value: int, timeout_s: float) -> bool:
        """Waits until round value's input is in place; the GIL is free meanwhile.

        Naps last nap_us. When no round has come for 100 ms, in this call and those before it, they last
        longest_idle_nap_us: an engine without requests does not burn the CPU of its quota.

        Args:
            value: the round.
            timeout_s: infinite waits for ever, negative or 0 looks once.

        Returns:
            True once gathered >= value, False after timeout_s.

        Raises:
            ValueError: timeout_s is NaN.
            StreamSyncError: the object is closed.
        """
        self._check_open()
        round_number = operator.index(value) & _M32
        left_ns = as_ns(timeout_s, 1)
        wait = self.lib.dsv41_hf_wait_geq
        spin_ns = self.spin_ns
        while True:
            slice_ns = left_ns if left_ns < _SLICE_NS else _SLICE_NS  # noqa: FURB136  min() takes thrice as long
            nap_ns = self.nap_ns if self._idle_ns < _IDLE_AFTER_NS else self._idle_nap_ns()
            if wait(self.gathered_host, round_number, slice_ns, spin_ns, nap_ns) == 0:
                self._idle_ns = 0
                return True
            self._idle_ns += max(0, slice_ns)
            if left_ns == slice_ns:
                return False
            spin_ns = max(0, spin_ns - slice_ns)
            if timeout_s != float("inf"):
                left_ns -= slice_ns

    def publish(self, value: int, src: "npt.NDArray[Any]") -> bool:
        """Writes round value's reply and releases it, unless the round is decided already.

        Args:
            value: the round; the caller has seen it gathered and the round before it consumed.
            src: the reply, a C-contiguous array of at most REPLY_CAPACITY bytes.

        Returns:
            True if this call decided the round.

        Raises:
            ValueError: src is no such array.
            StreamSyncError: closed, or inherited through fork.
        """
        self._check_may_store()
        address = _address_of(src)
        size = src.nbytes
        if size > REPLY_CAPACITY:
            raise ValueError(f"the reply has {size} bytes, the page holds {REPLY_CAPACITY}")
        return bool(
            self._short.dsv41_hf_publish(
                self.claimed_host,
                self.released_host,
                operator.index(value) & _M32,
                self.reply_host,
                address,
                size,
            )
        )

    def taken(self, value: int) -> bool:
        """True once round value or a later one is claimed: its input must not be read any more."""
        return is_geq(self._load(self.claimed_host), operator.index(value))

    def reply_consumed(self, value: int) -> bool:
        """True once the stream has copied round value's reply out, so that the next may be written."""
        return is_geq(self._load(self.consumed_host), operator.index(value))

    # ---- stand-ins for what an engine does on its stream ----

    def consumed(self, value: int, stream: object = None) -> None:
        """Acknowledges round value's reply; an engine overrides it with a write on its stream."""
        self._check_may_store()
        self._short.dsv41_hf_store(self.consumed_host, operator.index(value) & _M32)

    def release(self, value: int) -> None:
        """Releases round value without a reply: the self-test's rescue."""
        self._check_may_store()
        self._short.dsv41_hf_release_max(self.released_host, operator.index(value) & _M32)

    def drain_marker(self) -> object:
        """A marker of what is pending on the stream now; nothing is on a CPU."""
        return None

    def drained(self, marker: object) -> bool:
        """True once everything before the marker is done."""
        return True

    # ---- failing ----

    def fail_all(self, value: int) -> bool:
        """Fails round value and all before it.

        1. Wait until what is claimed is released and what is released is consumed, at most 10 ms each.
        2. Claim the round after claimed: as claimed never moves back, that succeeds only if it has not moved since 1,
           so nobody writes a reply and none is unread. Else back to 1.
        3. Claim value, write the failed reply, release value.

        Every return to 1 means that somebody served or failed a round in between, one nearer to value.

        A claimant that is still at it after 10 ms is taken for dead: one that only stands still must be ended first.

        Returns:
            True if this call decided the round; False if it was claimed, or the object is closed or inherited.
        """
        round_number = operator.index(value) & _M32
        if self.page == 0 or self._is_inherited():
            return False
        while is_ahead(round_number, claimed := self._load(self.claimed_host)):
            self._ends_within_grace(self.released_host, claimed)
            self._ends_within_grace(self.consumed_host, self._load(self.released_host))
            following = (claimed + 1) & _M32
            if self._claim(following):
                if following != round_number and not self._claim(round_number):
                    return False  # another failing call took this one for dead, and has gone further
                self._write_failed_reply(self.reply_bytes, self.fail_status)
                self.release(round_number)
                return True
        return False

    def fail_ahead(self) -> bool:
        """Fails every pending and later round at once: the proxy is dead, or this process exits.

        1. Claimed 2^29 or more ahead of gathered: it was done before, and a second step would put released 2^31
           ahead. Only finish what a claimant that died in between left: failed reply, release. False.
        2. Else fail_all at 2^30 past the furthest of gathered, released, claimed.

        Returns:
            True if this call did it.
        """
        if self.page == 0 or self._is_inherited():
            return False
        gathered, released, claimed = self.values()
        if ALREADY_FAR_AHEAD <= (claimed - gathered) & _M32 < 1 << 31:
            self._finish_claimed(claimed)
            return False
        furthest = gathered
        for word in (released, claimed):
            if is_ahead(word, furthest):
                furthest = word
        return self.fail_all(furthest + FAR_AHEAD)

    def watch_proxy(self, pid: int) -> Callable[[], None]:
        """Fails ahead when process pid, the proxy, ends, however it ends; at once if it is gone.

        Returns:
            An undo that ends the watch. close() ends it too.

        Raises:
            StreamSyncError: closed, inherited through fork, or the process cannot be watched.
        """
        self._check_may_store()
        watch = watch_process_end(pid, self.fail_ahead)
        self._watches.difference_update([other for other in tuple(self._watches) if other.is_over])
        if watch is None:
            return _nothing_to_undo
        self._watches.add(watch)
        return watch.cancel

    # ---- set-up and watchdog ----

    def attach(self, reply_bytes: int, fail_status: int, deadline_ms: float, poll_us: float = 1000) -> None:
        """Sizes the reply, puts a failed reply in place and starts the watchdog.

        Args:
            reply_bytes: 4 to REPLY_CAPACITY.
            fail_status: int32 at the start of a failed reply; the rest is zero.
            deadline_ms: how long a gathered round may stay unreleased, in ms; above 100 ms (one CFS period) where a
                CPU quota applies.
            poll_us: how often the watchdog looks, in us; at most a tenth of the deadline, and 50 us to 100 ms.

        The watchdog's thread runs on the CPUs and at the priority that the calling thread has now: call this before
        that thread is pinned.

        Raises:
            StreamSyncError: a watchdog runs, a size or deadline is out of range (nothing is changed then), closed,
                inherited through fork, or no thread can be started.
        """
        self._check_may_store()
        if self._watchdog is not None:
            raise StreamSyncError("a watchdog is running on this page; call stop_watchdog before attaching again")
        size = _checked_reply_bytes(reply_bytes)
        if not deadline_ms > 0:
            raise StreamSyncError(f"the deadline is {deadline_ms} ms, expected more than 0")
        deadline_ns = max(1, as_ns(deadline_ms, 1000))
        poll_ns = max(_MIN_POLL_NS, min(as_ns(poll_us, 1_000_000), deadline_ns // 10, _MAX_POLL_NS))
        self._write_failed_reply(size, fail_status)
        watchdog = self.lib.dsv41_hf_watchdog_start(
            self.gathered_host,
            self.released_host,
            self.claimed_host,
            self.reply_host,
            size,
            fail_status,
            deadline_ns,
            poll_ns,
        )
        if not watchdog:
            raise StreamSyncError("the watchdog does not start: no memory or no thread; raise the pod's pids limit")
        self._watchdog = watchdog
        self.reply_bytes = size
        self.fail_status = fail_status
        self.deadline_ms = deadline_ms
        if self._forget_exit is None:
            self._forget_exit = call_at_exit(self._fail_ahead_at_exit)

    def configure_reply(self, reply_bytes: int, fail_status: int, deadline_ms: float = 0) -> None:
        """Sets size and status without touching the page: a proxy's view of a page that the engine attached.

        Args:
            reply_bytes, fail_status: as in attach.
            deadline_ms: the engine's deadline, in ms, which keeps this proxy's idle naps short beside it; 0: unknown.

        Raises:
            StreamSyncError: the size is not within 4 to REPLY_CAPACITY.
        """
        self.reply_bytes = _checked_reply_bytes(reply_bytes)
        self.fail_status = fail_status
        self.deadline_ms = deadline_ms

    def watchdog_stats(self) -> dict[str, Any]:
        """{"running": False}, or running, deadline_ms, fires, last_failed_round and max_late_ms."""
        stats = (ctypes.c_uint64 * 3)()
        if not self.watchdog_mirror(ctypes.addressof(stats)):
            return {"running": False}
        return {
            "running": True,
            "deadline_ms": self.deadline_ms,
            "fires": stats[0],
            "last_failed_round": stats[1],
            "max_late_ms": stats[2] / 1e6,
        }

    def watchdog_mirror(self, dst: int) -> bool:
        """Writes the watchdog's raw stats, 3 x u64, to address dst; without a watchdog nothing, and False."""
        if self._is_inherited():
            return False
        with self._watchdog_lock:  # keeps a stop in another thread from freeing it meanwhile
            if self._watchdog is None:
                return False
            self._short.dsv41_hf_watchdog_stats(self._watchdog, dst)
        return True

    def stop_watchdog(self) -> None:
        """Stops and joins the watchdog if one runs, within one poll."""
        if self._is_inherited():
            self._watchdog = None
            return
        with self._watchdog_lock:
            watchdog, self._watchdog = self._watchdog, None
        if watchdog is not None:
            self.lib.dsv41_hf_watchdog_stop(watchdog)

    def reset(self) -> None:
        """Sets all words to 0; only while neither stream nor proxy uses the page.

        Raises:
            StreamSyncError: a watchdog runs, closed, or inherited through fork.
        """
        self._check_may_store()
        if self._watchdog is not None:
            raise StreamSyncError("reset while the watchdog runs would show it false rounds; call stop_watchdog first")
        for word in (self.gathered_host, self.released_host, self.claimed_host, self.consumed_host):
            self._short.dsv41_hf_set(word, 0)

    def close(self) -> None:
        """Stops watches and watchdog, frees the page if it is this object's; fails no round. May be called twice."""
        if self.page == 0:
            return
        for watch in tuple(self._watches):
            watch.cancel()
        self._watches.clear()
        self.stop_watchdog()
        if self._forget_exit is not None:
            self._forget_exit()
        self._forget_page()

    def describe(self) -> dict[str, Any]:
        """The mechanism and its settings, for a log line or a report."""
        return {
            "mechanism": "host_flags",
            "lib": self.lib_origin,
            "spin_us": self.spin_us,
            "nap_us": self.nap_us,
            "mlock": "ok" if self.mlock_errno == 0 else f"errno {self.mlock_errno}",
            "watchdog_deadline_ms": self.deadline_ms,
        }

    # ---- inside ----

    def _idle_nap_ns(self) -> int:
        """The nap of an idle wait: nap_us at least, and little beside the watchdog's deadline; 0 where waits yield."""
        if self.nap_ns == 0:
            return 0
        longest_ns = as_ns(self.longest_idle_nap_us, 1_000_000)
        if self.deadline_ms:
            longest_ns = min(longest_ns, as_ns(self.deadline_ms, 1000) // _IDLE_NAPS_PER_DEADLINE)
        return max(self.nap_ns, longest_ns)

    def _claim(self, round_number: int) -> bool:
        return bool(self._short.dsv41_hf_claim(self.claimed_host, round_number))

    def _write_failed_reply(self, size: int, status: int) -> None:
        """The same bytes as the C library's failed reply; the status goes first, the rest is zero."""
        ctypes.memset(self.reply_host, 0, size)
        status_bytes = (status & _M32).to_bytes(4, sys.byteorder)
        ctypes.memmove(self.reply_host, status_bytes, min(size, len(status_bytes)))

    def _finish_claimed(self, claimed: int) -> None:
        """Releases what a claimant that died in between left claimed; a live one has 10 ms to do it itself."""
        if not self._ends_within_grace(self.released_host, claimed):
            self._write_failed_reply(self.reply_bytes, self.fail_status)
            self.release(claimed)

    def _fail_ahead_at_exit(self) -> None:
        if not self._is_inherited():
            self.fail_ahead()
            self.stop_watchdog()


def _nothing_to_undo() -> None:
    """The undo of a watch that was over before it began."""


def _address_of(src: Any) -> int:
    """Where the bytes of a C-contiguous numpy array without objects start.

    The buffer tells it in a third of the time that numpy's dict takes, and is had of contiguous arrays alone.

    Raises:
        ValueError: src is no such array.
    """
    numpy = sys.modules.get("numpy")  # whoever has an array has imported it: we need not
    if numpy is not None and isinstance(src, numpy.ndarray) and not src.dtype.hasobject:
        try:
            return ctypes.addressof(ctypes.c_char.from_buffer(src))
        except (TypeError, ValueError, BufferError):  # read-only, empty, or of a type that has no buffer: a date
            if src.flags.c_contiguous:
                return int(src.__array_interface__["data"][0])
    raise ValueError("the reply is not a C-contiguous numpy array of plain values; use numpy.ascontiguousarray")


def _checked_reply_bytes(reply_bytes: int) -> int:
    size = operator.index(reply_bytes)
    if not 4 <= size <= REPLY_CAPACITY:
        raise StreamSyncError(f"the reply size is {size} bytes, expected 4 to {REPLY_CAPACITY}")
    return size
