"""Who takes part between two threads or two processes, and what is told of each."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from hostflag_native.bench.mechanism import (
    Channel,
    ConnectionMechanism,
    DescriptorMechanism,
    Event,
    EventMechanism,
    Mechanism,
    NativeMechanism,
    PythonHandoff,
    Sent,
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
    PYTHON = "hand-off from Python, spin"
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
    return (*_spinning(ports), *_others(ports))


def _spinning(ports: Ports) -> Iterator[Contestant]:
    def native(kind: Kind, **settings: Any) -> NativeMechanism:
        with_times = settings.pop("with_times", False)
        exchange = Exchange(kind, 0, lib_path=ports.lib_path, **settings)
        return NativeMechanism(exchange, ports.library, ports.address, with_times)

    round_trip = Measure.ROUND_TRIP
    yield Contestant(native(Kind.BARE), SPINNING_EFFORT, ((Label.BARE, round_trip),))
    yield Contestant(native(Kind.HANDOFF), SPINNING_EFFORT, ((Label.HANDOFF, round_trip),))
    yield Contestant(
        native(Kind.HANDOFF, with_times=True),
        SPINNING_EFFORT,
        ((Label.SPIN_THERE, Measure.THERE), (Label.SPIN_BACK, Measure.BACK)),
    )
    yield Contestant(native(Kind.HANDOFF, reply_bytes=REPLY_4K), SPINNING_EFFORT, ((Label.HANDOFF_4K, round_trip),))
    yield Contestant(
        native(Kind.HANDOFF, spin_ns=0, nap_ns=NAP_NS, pause_ns=REST_NS, with_times=True),
        NAPPING_EFFORT,
        ((Label.NAP, round_trip), (Label.NAP_THERE, Measure.THERE)),
    )
    yield Contestant(native(Kind.FUTEX), BLOCKING_EFFORT, ((Label.FUTEX, round_trip),))


def _others(ports: Ports) -> Iterator[Contestant]:
    def row(label: Label) -> tuple[tuple[Label, Measure], ...]:
        return ((label, Measure.ROUND_TRIP),)

    there, back = ports.eventfds
    yield Contestant(DescriptorMechanism((there, there), (back, back)), BLOCKING_EFFORT, row(Label.EVENTFD))
    pipes = DescriptorMechanism(ports.pipes[:2], ports.pipes[2:])
    yield Contestant(pipes, BLOCKING_EFFORT, row(Label.PIPE))
    yield Contestant(PythonHandoff(ports.lib_path, ports.address), BLOCKING_EFFORT, row(Label.PYTHON))
    event_label = Label.THREADING_EVENT if ports.channels is None else Label.PROCESS_EVENT
    events = EventMechanism(*ports.events, ports.address + OFF_ENDING)
    yield Contestant(events, BLOCKING_EFFORT, row(event_label))
    if ports.channels is not None:
        yield Contestant(ConnectionMechanism(*ports.channels), BLOCKING_EFFORT, row(Label.PROCESS_PIPE))
