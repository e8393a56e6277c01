"""Ways to hand a round to another CPU and get it back: what each side of one does in one slice of the benchmark."""

import ctypes
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from hostflag_native.core import HostFlagCore
from hostflag_native.exchange import Exchange, ExchangeFailedError
from hostflag_native.layout import OFF_CLAIMED, OFF_CONSUMED, OFF_GATHERED, OFF_RELEASED
from hostflag_native.probe import ProbeRounds, load_probe

STEP_SECONDS: Final = 10.0
"""The longest wait for one step, in s: a side that takes longer is dead, however busy the machine."""

ENDS: Final = b"\1"
GOES_ON: Final = b"\0"
"""What a Connection carries: whether this round is the slice's last."""


@dataclass(frozen=True, slots=True)
class Slice:
    """What both sides of one slice agree on.

    Attributes:
        count: rounds, at most.
        budget_ns: the side that starts rounds ends so long after its first one was answered.
        may_spin: False where both sides share one CPU: spinning there only keeps the other from answering.
        jitter_ns: added to the rest before each round, where there is one: waking from naps depends on when in a nap
            the round comes.
    """

    count: int
    budget_ns: int
    may_spin: bool = True
    jitter_ns: int = 0


@dataclass(frozen=True, slots=True)
class Sent:
    """What the side that starts rounds measured: each round trip, and when each was sent if asked for, in ns."""

    round_trips_ns: list[int]
    sent_ns: list[int]


class Mechanism(Protocol):
    """Both sides of one way to hand over; the two run at the same time, each in a thread or process of its own."""

    def prepare(self, part: Slice) -> None:
        """Makes everything ready; before either side starts."""

    def ping(self, part: Slice) -> Sent:
        """Starts rounds and waits for their answers.

        Raises:
            ExchangeFailedError: an answer did not come in time.
        """

    def pong(self, part: Slice) -> list[int]:
        """Answers until the other side ends. Returns when each round was seen, in ns, if asked for."""


@dataclass(frozen=True, slots=True)
class NativeMechanism:
    """The C loops on the words of a page: the hand-off, the bare ping-pong, futexes."""

    exchange: Exchange
    library: Any
    address: int
    with_times: bool = False

    def prepare(self, part: Slice) -> None:
        """Sets the words to just before the first round."""
        self._sized(part).prepare(self.library, self.address)

    def ping(self, part: Slice) -> Sent:
        """One C call."""
        return Sent(*self._sized(part).ping(self.library, self.address))

    def pong(self, part: Slice) -> list[int]:
        """One C call."""
        return self._sized(part).pong(self.library, self.address, with_times=self.with_times)

    def _sized(self, part: Slice) -> Exchange:
        return replace(
            self.exchange,
            count=part.count,
            budget_ns=part.budget_ns,
            spin_ns=self.exchange.spin_ns if part.may_spin else 0,
            pause_ns=self.exchange.pause_ns + part.jitter_ns if self.exchange.pause_ns else 0,
            limit_ns=int(STEP_SECONDS * 1e9),
        )


@dataclass(frozen=True, slots=True)
class DescriptorMechanism:
    """The C loops over descriptors: eventfds, or pipes with an end for each side."""

    there: tuple[int, int]
    """To read and to write what goes from ping to pong."""
    back: tuple[int, int]

    def prepare(self, part: Slice) -> None:
        """Nothing: each slice leaves them empty."""

    def ping(self, part: Slice) -> Sent:
        """One C call."""
        rounds = ProbeRounds(count=part.count, budget_ns=part.budget_ns)
        trips = (ctypes.c_int64 * part.count)()
        made = load_probe().hf_probe_fd_ping(self.there[1], self.back[0], ctypes.byref(rounds), trips)
        if made < 0:
            raise ExchangeFailedError("a descriptor of the exchange was closed")
        return Sent(trips[:made], [])

    def pong(self, part: Slice) -> list[int]:
        """One C call."""
        load_probe().hf_probe_fd_pong(self.there[0], self.back[1])
        return []


@dataclass(frozen=True, slots=True)
class PythonHandoff:
    """The hand-off as an engine in Python calls it: the proxy through HostFlagCore, the stream's half through ctypes.

    The words start at 0 and are the page's; each side has an object of its own on it.
    """

    lib_path: str
    address: int

    def prepare(self, part: Slice) -> None:
        """Sets the words to just before round 1."""
        core = self._core(part)
        for offset in (OFF_GATHERED, OFF_RELEASED, OFF_CLAIMED, OFF_CONSUMED):
            core.lib.dsv41_hf_set(self.address + offset, 0)
        core.close()

    def ping(self, part: Slice) -> Sent:
        """Gather, wait for the release, consume."""
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
        return HostFlagCore(self.lib_path, spin_us=spin_us, nap_us=0, page=self.address)


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
