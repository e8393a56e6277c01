"""A device stream's half of the hand-off, played by a thread or called step by step."""

import ctypes
import threading

from hostflag_native import HostFlagCore

LIMIT_NS = 10_000_000_000
"""How long a step may take before a test fails, in ns: far longer than it ever does."""


class StreamStandIn:
    """What the stream does with one page, in its order: gather, wait for the release, copy the reply, consume."""

    def __init__(self, core: HostFlagCore) -> None:
        self.lib = core.lib
        self.core = core

    def gather(self, value: int) -> None:
        self.lib.dsv41_hf_store(self.core.gathered_host, value)

    def is_released(self, value: int, limit_ns: int = 0) -> bool:
        return bool(self.lib.dsv41_hf_wait_geq(self.core.released_host, value, limit_ns, 0, 20_000) == 0)

    def reply(self, size: int) -> bytes:
        return ctypes.string_at(self.core.reply_host, size)

    def consume(self, value: int) -> None:
        self.lib.dsv41_hf_store(self.core.consumed_host, value)

    def run_round(self, value: int, size: int) -> bytes:
        """One whole round; fails the test when the stream stays parked."""
        self.gather(value)
        assert self.is_released(value, LIMIT_NS), f"round {value} stayed parked"
        reply = self.reply(size)
        self.consume(value)
        return reply


class StreamThread:
    """Runs rounds first..last on a thread; replies in order after join."""

    def __init__(self, stream: StreamStandIn, first: int, count: int, size: int) -> None:
        self.replies: list[bytes] = []
        self._thread = threading.Thread(target=self._run, args=(stream, first, count, size))
        self._thread.start()

    def _run(self, stream: StreamStandIn, first: int, count: int, size: int) -> None:
        self.replies.extend(stream.run_round((first + i) % 2**32, size) for i in range(count))

    def join(self) -> list[bytes]:
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.replies
