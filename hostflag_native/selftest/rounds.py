"""Plays rounds on a page: the stream's half, the proxy's half, and the faults that are injected on purpose."""

import ctypes
import threading
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from hostflag_native.core import HostFlagCore
from hostflag_native.errors import StreamStuckError
from hostflag_native.layout import _M32
from hostflag_native.selftest.verdict import CheckFailedError

STEP_SECONDS: Final = 2.0
"""How long one step of a round may take, in s: far above a throttled period (0.1 s), far below the time limit."""

STEP_NS: Final = int(STEP_SECONDS * 1e9)

RESCUE_NS: Final = 1_000_000_000
"""How long a rescued stream gets to go on, in ns."""

OFF_RESERVED: Final = 512
"""A reserved word, for the injected store to a wrong one."""

JUST_BELOW_WRAP: Final = 2**32 - 50
"""Where words start for the rounds across the wrap."""


class Injection(StrEnum):
    """A fault that is made on purpose, so that one sees the self-test find it."""

    NONE = ""
    NO_STORE = "no-store"
    LATE = "late"
    WRONG_WORD = "wrong-word"


def reply_of(round_number: int, size: int) -> bytes:
    """The reply of a round: its number, over and over, so that a byte of another round shows."""
    return ((round_number & _M32).to_bytes(4, "little") * (size // 4 + 1))[:size]


def publish_bytes(core: HostFlagCore, round_number: int, reply: bytes) -> bool:
    """HostFlagCore.publish without numpy: the same C call."""
    done = core.lib.dsv41_hf_publish(
        core.claimed_host, core.released_host, round_number & _M32, core.reply_host, reply, len(reply)
    )
    return bool(done)


def set_words(core: HostFlagCore, value: int) -> None:
    """All four words to a value, before anyone uses the page."""
    for word in (core.gathered_host, core.released_host, core.claimed_host, core.consumed_host):
        core.lib.dsv41_hf_set(word, value & _M32)


def rescues(core: HostFlagCore, round_number: int) -> tuple[tuple[str, str, Callable[[], object]], ...]:
    """What may let a parked stream go, gentlest first: the fault that each proves, its name, and what does it.

    Stores of the host alone: no call of the driver, which may wait for the very stream.
    """
    value = round_number & _M32
    return (
        ("device-not-released", "a release", lambda: core.release(value)),
        ("device-not-released", "failing ahead", core.fail_ahead),
        (
            "device-compare",
            "setting the word to exactly the round (the device does not compare cyclically)",
            lambda: core.lib.dsv41_hf_set(core.released_host, value),
        ),
    )


def stays_parked(round_number: int) -> str:
    """The sentence about a stream that no rescue let go."""
    return (
        f"the stream stayed parked at round {round_number & _M32} after the rescue: "
        "this device does not observe host stores"
    )


class StreamStandIn:
    """What a device stream does with a page, on the CPU."""

    def __init__(self, core: HostFlagCore, size: int) -> None:
        self._core = core
        self._size = size

    def gather(self, round_number: int) -> None:
        """The round's input is in place."""
        self._core.lib.dsv41_hf_store(self._core.gathered_host, round_number & _M32)

    def is_released(self, round_number: int, limit_ns: int) -> bool:
        """Waits for the release."""
        waited = self._core.lib.dsv41_hf_wait_geq(
            self._core.released_host, round_number & _M32, limit_ns, 50_000, 100_000
        )
        return bool(waited == 0)

    def take_reply(self, round_number: int) -> bytes:
        """Copies the reply out and consumes it."""
        reply = ctypes.string_at(self._core.reply_host, self._size)
        self._core.lib.dsv41_hf_store(self._core.consumed_host, round_number & _M32)
        return reply


class FaultyProxy:
    """Publishes the replies of rounds, breaking one of them on purpose where asked to."""

    def __init__(self, core: HostFlagCore, size: int, injection: Injection, broken_round: int) -> None:
        self._core = core
        self._size = size
        self._injection = injection
        self._broken_round = broken_round & _M32
        self.stream_gave_up = threading.Event()
        """Set by the stream's side when it has waited in vain."""

    def answer(self, round_number: int) -> None:
        """Publishes one round, or does with it what the injection says."""
        reply = reply_of(round_number, self._size)
        is_broken = round_number & _M32 == self._broken_round
        if is_broken and self._injection is Injection.NO_STORE:
            return
        if is_broken and self._injection is Injection.WRONG_WORD:
            wrong = self._core.page + OFF_RESERVED
            self._core.lib.dsv41_hf_store(wrong, round_number & _M32)
            return
        if is_broken and self._injection is Injection.LATE:
            self.stream_gave_up.wait(2 * STEP_SECONDS)
        publish_bytes(self._core, round_number, reply)


def play_rounds(core: HostFlagCore, first: int, count: int, size: int, injection: Injection = Injection.NONE) -> None:
    """Plays rounds with the stream here and the proxy on a thread, from words at first - 1.

    Raises:
        CheckFailedError: a round was not released in time, or came with another reply.
        StreamStuckError: not even the rescue released it.
    """
    set_words(core, first - 1)
    proxy = FaultyProxy(core, size, injection, first + count // 2)
    failures: list[str] = []

    def proxy_half() -> None:
        for i in range(count):
            if not core.wait_gathered(first + i, 2 * STEP_SECONDS):
                return
            if not core.reply_consumed(first + i - 1):
                failures.append(f"round {first + i & _M32} was gathered before the reply before it was consumed")
            proxy.answer(first + i)

    thread = threading.Thread(target=proxy_half, name="selftest-proxy", daemon=True)
    thread.start()
    stream = StreamStandIn(core, size)
    try:
        for i in range(count):
            _play_round(core, stream, proxy, first + i, size)
    finally:
        proxy.stream_gave_up.set()
        thread.join(4 * STEP_SECONDS)
        core.lib.dsv41_hf_set(core.page + OFF_RESERVED, 0)
    if failures:
        raise CheckFailedError("host-order", failures[0])


def _play_round(core: HostFlagCore, stream: StreamStandIn, proxy: FaultyProxy, round_number: int, size: int) -> None:
    stream.gather(round_number)
    if not stream.is_released(round_number, STEP_NS):
        core.release(round_number)
        proxy.stream_gave_up.set()
        if not stream.is_released(round_number, RESCUE_NS):
            raise StreamStuckError(f"round {round_number & _M32} stayed parked after the rescue on the CPU itself")
        raise CheckFailedError(
            "host-not-released",
            f"round {round_number & _M32} was not released within {STEP_SECONDS:g} s; the rescue released it",
        )
    reply = stream.take_reply(round_number)
    if reply != reply_of(round_number, size):
        raise CheckFailedError("host-reply", f"round {round_number & _M32} came with the reply {reply[:8].hex()}…")
