"""One device's half of the hand-off: the page registered with it, and a stream that plays rounds."""

import ctypes
import time
from typing import Final

from hostflag_native.core import HostFlagCore
from hostflag_native.errors import StreamStuckError
from hostflag_native.layout import (
    _M32,
    CU_MEMHOSTREGISTER_DEVICEMAP,
    CU_MEMHOSTREGISTER_PORTABLE,
    CU_STREAM_WAIT_VALUE_GEQ,
    CU_STREAM_WRITE_VALUE_DEFAULT,
    OFF_CONSUMED,
    OFF_GATHERED,
    OFF_RELEASED,
    PAGE_BYTES,
)
from hostflag_native.selftest.cuda_driver import EVENT_DEFAULT, NOT_READY, STREAM_NON_BLOCKING, SUCCESS, CudaDriver
from hostflag_native.selftest.rounds import RESCUE_NS, STEP_NS, STEP_SECONDS, rescues, stays_parked
from hostflag_native.selftest.shared_round import SharedRound
from hostflag_native.selftest.verdict import CheckFailedError

_EVENT_FAULT: Final = "device-latency"

_POLL_SPIN_NS: Final = 1_000_000
"""How long a look at a word spins, in ns: a sound device answers within, so that latencies are not those of naps."""

_POLL_NAP_NS: Final = 200_000
"""Nap after that, in ns: whatever takes longer is waited for without burning a CPU."""


class DeviceStream:
    """The page as a device sees it, and one non-blocking stream; everything is pinned and allocated in set_up.

    No call here waits for the stream: it may be parked, and such a call would never return.
    """

    def __init__(
        self, driver: CudaDriver, core: HostFlagCore, shared_round: SharedRound, ordinal: int, reply_bytes: int
    ) -> None:
        """Args: shared_round: where it is noted that a stream may be parked; the core is on its page."""
        self._driver = driver
        self._core = core
        self._round = shared_round
        self._ordinal = ordinal
        self._reply_bytes = reply_bytes
        self._stream = ctypes.c_void_p()
        self._page_device = ctypes.c_uint64()
        self._buffer_device = ctypes.c_uint64()
        self._reply_copy = ctypes.c_void_p()
        self._last_queued = 0
        self._undo: list[tuple[str, object]] = []

    def set_up(self) -> None:
        """Context, page, buffers, stream, in this order.

        Raises:
            CheckFailedError: a driver call failed.
        """
        device = self._driver.device(self._ordinal)
        context = ctypes.c_void_p()
        self._acquire("device-context", "cuDevicePrimaryCtxRetain", (ctypes.byref(context), device))
        self._undo.append(("cuDevicePrimaryCtxRelease_v2", device))
        self._acquire("device-context", "cuCtxSetCurrent", (context,))
        flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP
        self._acquire("device-register", "cuMemHostRegister_v2", (self._core.page, PAGE_BYTES, flags))
        self._undo.append(("cuMemHostUnregister", self._core.page))
        pointer = (ctypes.byref(self._page_device), self._core.page, 0)
        self._acquire("device-register", "cuMemHostGetDevicePointer_v2", pointer)
        self._acquire("device-memory", "cuMemAlloc_v2", (ctypes.byref(self._buffer_device), self._reply_bytes))
        self._undo.append(("cuMemFree_v2", self._buffer_device))
        self._acquire("device-memory", "cuMemAllocHost_v2", (ctypes.byref(self._reply_copy), self._reply_bytes))
        self._undo.append(("cuMemFreeHost", self._reply_copy))
        self._acquire("device-stream", "cuStreamCreate", (ctypes.byref(self._stream), STREAM_NON_BLOCKING))
        self._undo.append(("cuStreamDestroy_v2", self._stream))

    def tear_down(self) -> None:
        """Lets go of what may still be parked, then undoes what set_up did, last first; the page before it is freed.

        Raises:
            StreamStuckError: the stream stays parked; then nothing is undone, since each of those calls would hang.
        """
        if self._stream:
            self._let_go()
        while self._undo:
            name, argument = self._undo.pop()
            self._driver.result_of(name, argument)

    def queue_round(self, round_number: int, *, with_reply: bool = True, released_event: object = None) -> None:
        """Queues a whole round: gather, wait for the release, copy the reply through the device, consume.

        Args:
            released_event: an event that the stream passes as it goes on; None: none.
        """
        self._last_queued = round_number & _M32
        self._write(OFF_GATHERED, round_number)
        self._round.note_queued(round_number)  # before the call: one that blocks does so with the stream parked
        self._queue(
            "cuStreamWaitValue32_v2",
            self._page_device.value + OFF_RELEASED,
            round_number & _M32,
            CU_STREAM_WAIT_VALUE_GEQ,
        )
        if released_event is not None:
            self.record(released_event)
        if with_reply:
            size, buffer = self._reply_bytes, self._buffer_device.value
            self._driver.call("device-queue", "cuMemcpyHtoDAsync_v2", buffer, self._core.reply_host, size, self._stream)
            self._driver.call("device-queue", "cuMemcpyDtoHAsync_v2", self._reply_copy, buffer, size, self._stream)
        self._write(OFF_CONSUMED, round_number)

    def make_event(self) -> object:
        """An event that keeps the device's time; it goes with the tear-down."""
        event = ctypes.c_void_p()
        self._acquire(_EVENT_FAULT, "cuEventCreate", (ctypes.byref(event), EVENT_DEFAULT))
        self._undo.append(("cuEventDestroy_v2", event))
        return event

    def record(self, event: object) -> None:
        """Queues the event: it keeps the time at which the stream comes to it."""
        self._driver.call(_EVENT_FAULT, "cuEventRecord", event, self._stream)

    def elapsed_ns(self, start: object, end: object) -> float:
        """The device's time from one event to another, in ns; the stream has passed both."""
        elapsed_ms = ctypes.c_float()
        self._driver.call(_EVENT_FAULT, "cuEventElapsedTime", ctypes.byref(elapsed_ms), start, end)
        return elapsed_ms.value * 1e6

    def expect_gathered(self, round_number: int) -> None:
        """Waits until the host sees the stream's store.

        Raises:
            CheckFailedError: it does not within the step limit.
        """
        if not self._reaches(self._core.gathered_host, round_number, STEP_NS):
            self._expect_no_error()
            raise CheckFailedError(
                "device-not-gathered",
                f"the host saw no store of the stream within {STEP_SECONDS:g} s: cuStreamWriteValue32_v2 has no effect",
            )

    def expect_parked(self, round_number: int, watch_ns: int) -> None:
        """Watches that the stream, which has gathered, does not go on without a release.

        Raises:
            CheckFailedError: it went on.
        """
        went_on = self._reaches(self._core.consumed_host, round_number, watch_ns)
        if went_on or self._driver.result_of("cuStreamQuery", self._stream) == SUCCESS:
            raise CheckFailedError(
                "device-not-parked",
                f"the stream went on with round {round_number & _M32} before it was released: its wait has no effect",
            )
        self._expect_no_error()

    def expect_consumed(self, round_number: int) -> None:
        """Waits until the stream has gone on and the host sees that; else rescues it.

        Raises:
            CheckFailedError: it went on only after a rescue.
            StreamStuckError: it did not go on at all.
        """
        consumed = self._core.consumed_host
        if self._reaches(consumed, round_number, STEP_NS):
            self._note_consumed(round_number)
            return
        self._expect_no_error()
        value = round_number & _M32
        for fault, what, rescue in rescues(self._core, value):
            rescue()
            if self._reaches(consumed, round_number, RESCUE_NS):
                self._note_consumed(round_number)
                raise CheckFailedError(
                    fault, f"the stream did not go on with round {value} within {STEP_SECONDS:g} s; {what} rescued it"
                )
        raise StreamStuckError(stays_parked(value))

    def reply(self) -> bytes:
        """The reply of the last consumed round, as it came back from the device."""
        return ctypes.string_at(self._reply_copy, self._reply_bytes)

    def _let_go(self) -> None:
        """Rescues a stream that a check left parked, in the last round that was queued."""
        queued = self._last_queued
        for _, _, rescue in rescues(self._core, queued):
            if self._is_idle(0):
                break
            rescue()
            if self._is_idle(RESCUE_NS):
                break
        else:
            raise StreamStuckError(stays_parked(queued))
        self._round.note_idle()

    def _note_consumed(self, round_number: int) -> None:
        if round_number & _M32 == self._last_queued:
            self._round.note_idle()

    def _is_idle(self, limit_ns: int) -> bool:
        """True once nothing is pending, or the stream has failed; False after the limit."""
        give_up_ns = time.monotonic_ns() + limit_ns
        while self._driver.result_of("cuStreamQuery", self._stream) == NOT_READY:
            if time.monotonic_ns() >= give_up_ns:
                return False
            time.sleep(_POLL_NAP_NS / 1e9)
        return True

    def _reaches(self, word: int, round_number: int, limit_ns: int) -> bool:
        waited = self._core.lib.dsv41_hf_wait_geq(word, round_number & _M32, limit_ns, _POLL_SPIN_NS, _POLL_NAP_NS)
        return bool(waited == 0)

    def _expect_no_error(self) -> None:
        result = self._driver.result_of("cuStreamQuery", self._stream)
        if result not in {SUCCESS, NOT_READY}:
            raise CheckFailedError("device-error", f"the stream failed with {self._driver.error_name(result)}")

    def _write(self, offset: int, round_number: int) -> None:
        address = self._page_device.value + offset
        self._queue("cuStreamWriteValue32_v2", address, round_number & _M32, CU_STREAM_WRITE_VALUE_DEFAULT)

    def _queue(self, name: str, address: int, value: int, flags: int) -> None:
        self._driver.call("device-queue", name, self._stream, address, value, flags)

    def _acquire(self, fault: str, name: str, arguments: tuple[object, ...]) -> None:
        self._driver.call(fault, name, *arguments)
