"""Who takes part between two threads or two processes, and what is told of each."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from hostflag_native.bench.mechanism import Mechanism, Sent
from hostflag_native.bench.native_mechanisms import DescriptorMechanism, NativeMechanism
from hostflag_native.bench.python_mechanisms import (
    Channel,
    ConnectionMechanism,
    Event,
    EventMechanism,
    PythonHandoff,
)
from hostflag_native.exchange import Exchange, Kind

OFF_ENDING: Final = 512
"""Where on the page events tell their last round: a reserved word, which nobody else uses while they run."""

NAP_NS: Final = 50_000
"""The nap that the napping hand-off is measured with, in ns."""

REST_NS: Final = 200_000
"""How long its stream rests before each round, in ns: some naps of the proxy."""

REPLY_4K: Final = 4096

SPINNING_EFFORT: Final = 1.0
BLOCKING_EFFORT: Final = 0.05
NAPPING_EFFORT: Final = 0.01
"""Share of the asked rounds that a contestant makes: one round takes about 0.2, 10 and 300 us."""


class Pair(StrEnum):
    """What the two sides are."""

    THREADS = "threads"
    PROCESSES = "processes"


class Label(StrEnum):
    """The rows, as they are printed."""

    BARE = "bare ping-pong (the limit)"
    HANDOFF = "hand-off, spin"
    HANDOFF_4K = "hand-off, spin, 4 KiB reply"
    SPIN_THERE = "hand-off, spin, stream to proxy"
    SPIN_BACK = "hand-off, spin, proxy to stream"
    NAP = "hand-off, nap 50 us"
    NAP_THERE = "hand-off, nap 50 us, stream to proxy"
    PYTHON = "hand-off, spin, proxy in Python"
    PYTHON_BOTH = "hand-off, spin, both sides in Python"
    FUTEX = "futex"
    EVENTFD = "eventfd"
    PIPE = "pipe"
    THREADING_EVENT = "threading.Event"
    PROCESS_EVENT = "multiprocessing.Event"
    PROCESS_PIPE = "multiprocessing.Pipe"


class Measure(StrEnum):
    """What is taken of each round."""

    ROUND_TRIP = "round trip"
    THERE = "there"
    BACK = "back"

    @property
    def is_one_way(self) -> bool:
        """True for half a round trip, whose limit is half the bare round trip."""
        return self is not Measure.ROUND_TRIP

    def of(self, sent: Sent, seen_ns: list[int]) -> list[int]:
        """The samples of a slice, in ns. One-way times need both sides' clock, which CPUs share (CLOCK_MONOTONIC)."""
        if self is Measure.ROUND_TRIP:
            return sent.round_trips_ns
        answered = seen_ns[: len(sent.sent_ns)]
        if self is Measure.THERE:
            return [seen - start for seen, start in zip(answered, sent.sent_ns, strict=True)]
        return [
            start + trip - seen for start, trip, seen in zip(sent.sent_ns, sent.round_trips_ns, answered, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Contestant:
    """One mechanism, how many of the asked rounds it makes, and the rows that come of it."""

    mechanism: Mechanism
    effort: float
    rows: tuple[tuple[Label, Measure], ...]


@dataclass(frozen=True, slots=True)
class Ports:
    """What both sides share, as one of them has it.

    Attributes:
        library: the bound hand-off library; lib_path says which.
        address: the page.
        eventfds: one there, one back.
        pipes: to read and to write there, to read and to write back.
        events: one there, one back.
        channels: the two ends of a multiprocessing Pipe; None between threads.
    """

    library: Any
    lib_path: str
    address: int
    eventfds: tuple[int, int]
    pipes: tuple[int, int, int, int]
    events: tuple[Event, Event]
    channels: tuple[Channel, Channel] | None


def contestants(ports: Ports) -> tuple[Contestant, ...]:
    """All contestants on the ports; both sides get the same in the same order."""
    return (*_native(ports), *_python(ports))


def _native(ports: Ports) -> Iterator[Contestant]:
    timed_spin = ((Label.SPIN_THERE, Measure.THERE), (Label.SPIN_BACK, Measure.BACK))
    timed_nap = ((Label.NAP, Measure.ROUND_TRIP), (Label.NAP_THERE, Measure.THERE))
    napping = Exchange(Kind.HANDOFF, count=0, spin_ns=0, nap_ns=NAP_NS, pause_ns=REST_NS, lib_path=ports.lib_path)
    spinning = _spinning(ports)
    four_kib = replace(spinning, exchange=replace(spinning.exchange, reply_bytes=REPLY_4K))
    yield Contestant(_spinning(ports, Kind.BARE), SPINNING_EFFORT, _trips(Label.BARE))
    yield Contestant(spinning, SPINNING_EFFORT, _trips(Label.HANDOFF))
    yield Contestant(replace(spinning, with_times=True), SPINNING_EFFORT, timed_spin)
    yield Contestant(four_kib, SPINNING_EFFORT, _trips(Label.HANDOFF_4K))
    yield Contestant(replace(spinning, exchange=napping, with_times=True), NAPPING_EFFORT, timed_nap)
    yield Contestant(_spinning(ports, Kind.FUTEX), BLOCKING_EFFORT, _trips(Label.FUTEX))
    there, back = ports.eventfds
    eventfds = DescriptorMechanism((there, there), (back, back))
    pipes = DescriptorMechanism(ports.pipes[:2], ports.pipes[2:])
    yield Contestant(eventfds, BLOCKING_EFFORT, _trips(Label.EVENTFD))
    yield Contestant(pipes, BLOCKING_EFFORT, _trips(Label.PIPE))


def _python(ports: Ports) -> Iterator[Contestant]:
    stream = _spinning(ports)
    yield Contestant(PythonHandoff(stream, is_stream_in_python=False), BLOCKING_EFFORT, _trips(Label.PYTHON))
    yield Contestant(PythonHandoff(stream, is_stream_in_python=True), BLOCKING_EFFORT, _trips(Label.PYTHON_BOTH))
    events = EventMechanism(*ports.events, ports.address + OFF_ENDING)
    label = Label.THREADING_EVENT if ports.channels is None else Label.PROCESS_EVENT
    yield Contestant(events, BLOCKING_EFFORT, _trips(label))
    if ports.channels is not None:
        yield Contestant(ConnectionMechanism(*ports.channels), BLOCKING_EFFORT, _trips(Label.PROCESS_PIPE))


def _spinning(ports: Ports, kind: Kind = Kind.HANDOFF) -> NativeMechanism:
    return NativeMechanism(Exchange(kind, count=0, lib_path=ports.lib_path), ports.library, ports.address)


def _trips(label: Label) -> tuple[tuple[Label, Measure], ...]:
    return ((label, Measure.ROUND_TRIP),)
