"""Mechanisms with a side in Python: the hand-off's own Python face, and what Python has to wake another with."""

import ctypes
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from hostflag_native.bench.mechanism import STEP_SECONDS, Sent, Slice
from hostflag_native.bench.native_mechanisms import NativeMechanism
from hostflag_native.core import HostFlagCore
from hostflag_native.exchange import ExchangeFailedError

ENDS: Final = b"\1"
GOES_ON: Final = b"\0"
"""What a Connection carries: whether this round is the slice's last."""


@dataclass(frozen=True, slots=True)
class PythonHandoff:
    """The hand-off with its proxy in Python, through HostFlagCore as an engine calls it.

    Attributes:
        stream: the stream's half in C, as a device plays it: without Python's lock.
        is_stream_in_python: plays that half in Python too. Between two threads of one interpreter each side then
            waits for the lock that the other holds while it goes into its wait.
    """

    stream: NativeMechanism
    is_stream_in_python: bool

    def prepare(self, part: Slice) -> None:
        """Sets the words to just before round 1."""
        self.stream.prepare(part)

    def ping(self, part: Slice) -> Sent:
        """Gather, wait for the release, consume."""
        if not self.is_stream_in_python:
            return self.stream.ping(part)
        core = self._core(part)
        store, wait = core.lib.dsv41_hf_store, core.lib.dsv41_hf_wait_geq
        rounds = itertools.count(1)

        def make_round(*, is_last: bool) -> bool:
            value = part.count if is_last else next(rounds)
            store(core.gathered_host, value)
            if wait(core.released_host, value, int(STEP_SECONDS * 1e9), core.spin_ns, 0) != 0:
                return False
            core.consumed(value)
            return True

        trips = timed_rounds(part, make_round)
        core.close()
        return Sent(trips, [])

    def pong(self, part: Slice) -> list[int]:
        """Wait for the input, publish four bytes."""
        import numpy as np  # noqa: PLC0415  the program says so first where it is missing

        core = self._core(part)
        reply = np.zeros(1, np.int32)
        for value in range(1, part.count + 1):
            if not core.wait_gathered(value, STEP_SECONDS):
                break
            core.publish(value, reply)
        core.close()
        return []

    def _core(self, part: Slice) -> HostFlagCore:
        spin_us = 1e6 if part.may_spin else 0
        return HostFlagCore(self.stream.exchange.lib_path, spin_us=spin_us, nap_us=0, page=self.stream.address)


class Event(Protocol):
    """What threading.Event and multiprocessing.Event have in common."""

    def set(self) -> None: ...
    def clear(self) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...


@dataclass(frozen=True, slots=True)
class EventMechanism:
    """A Python event for each direction, and a word of a page that tells the last round."""

    there: Event
    back: Event
    ending_address: int

    def prepare(self, part: Slice) -> None:
        """Clears both: a slice that failed may have left them set."""
        self.there.clear()
        self.back.clear()
        ctypes.c_uint32.from_address(self.ending_address).value = 0

    def ping(self, part: Slice) -> Sent:
        """Set one, wait for the other."""
        ending = ctypes.c_uint32.from_address(self.ending_address)

        def make_round(*, is_last: bool) -> bool:
            if is_last:
                ending.value = 1
            self.there.set()
            is_set = self.back.wait(STEP_SECONDS)
            self.back.clear()
            return is_set

        return Sent(timed_rounds(part, make_round), [])

    def pong(self, part: Slice) -> list[int]:
        """Wait for one, set the other."""
        ending = ctypes.c_uint32.from_address(self.ending_address)
        while self.there.wait(STEP_SECONDS):
            self.there.clear()
            is_last = ending.value != 0
            self.back.set()
            if is_last:
                break
        return []


class Channel(Protocol):
    """What the benchmark needs of a multiprocessing Connection."""

    def send_bytes(self, buf: bytes) -> None: ...
    def recv_bytes(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class ConnectionMechanism:
    """A multiprocessing Pipe: each side has one end."""

    ping_end: Channel
    pong_end: Channel

    def prepare(self, part: Slice) -> None:
        """Nothing: each slice leaves it empty."""

    def ping(self, part: Slice) -> Sent:
        """Send one byte, receive one."""

        def make_round(*, is_last: bool) -> bool:
            self.ping_end.send_bytes(ENDS if is_last else GOES_ON)
            self.ping_end.recv_bytes()
            return True

        return Sent(timed_rounds(part, make_round), [])

    def pong(self, part: Slice) -> list[int]:
        """Receive one byte, send one."""
        is_last = False
        while not is_last:
            is_last = self.pong_end.recv_bytes() == ENDS
            self.pong_end.send_bytes(GOES_ON)
        return []


def timed_rounds(part: Slice, make_round: Callable[..., bool]) -> list[int]:
    """Times rounds in ns until the count or the budget is used up; the last one is made as such.

    Args:
        make_round: makes one round, told by is_last whether it is the slice's last; False if no answer came.

    Raises:
        ExchangeFailedError: no answer came.
    """
    trips: list[int] = []
    end_ns: float = float("inf")
    is_last = False
    while not is_last:
        sent_ns = time.perf_counter_ns()
        is_last = len(trips) + 1 >= part.count or sent_ns >= end_ns
        if not make_round(is_last=is_last):
            raise ExchangeFailedError(f"a round was not answered within {STEP_SECONDS:g} s; is the other side alive?")
        done_ns = time.perf_counter_ns()
        trips.append(done_ns - sent_ns)
        if len(trips) == 1:
            end_ns = done_ns + part.budget_ns
    return trips
