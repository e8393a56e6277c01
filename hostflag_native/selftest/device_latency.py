"""How long a host's store takes to a parked stream, and a stream's store to the host; measured, not judged."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hostflag_native.core import HostFlagCore
from hostflag_native.probe import Distribution
from hostflag_native.selftest.device_stream import DeviceStream
from hostflag_native.selftest.rounds import set_words
from hostflag_native.selftest.verdict import CheckFailedError, Figures

BATCH: Final = 64
"""Rounds queued at a time: a stream takes about 1,000 pending operations before queueing blocks."""

BATCHES: Final = 20

SECONDS: Final = 1.0
"""Longest time of each of the three measurements, in s: a slow device is measured with fewer batches."""


@dataclass(frozen=True, slots=True)
class TimedRound:
    """When one round was released and its consumption seen, in ns of the host, and when the stream went on.

    Attributes:
        went_on_ns: in ns since an event that the stream passed before the batch; 0 without events.
    """

    released_ns: float
    went_on_ns: float
    seen_ns: float


@dataclass(frozen=True, slots=True)
class Ways:
    """Both ways of some rounds, in ns.

    Attributes:
        uncertain_ns: either way may be longer by so much, the other is shorter then.
    """

    to_stream_ns: list[float]
    to_host_ns: list[float]
    uncertain_ns: float


def split_ways(rounds: Sequence[TimedRound]) -> Ways | None:
    """The two ways of each round, though no clock sees both ends; None where the clocks contradict each other.

    1. No way takes less than nothing: each round bounds what the clocks are apart, from below and from above.
    2. The tightest bounds of all rounds are as far apart as the fastest round trip takes. The middle is taken: of the
       fastest round, both ways count as alike.
    3. What a way takes above that is exact.
    """
    at_least_ns = max(each.released_ns - each.went_on_ns for each in rounds)
    at_most_ns = min(each.seen_ns - each.went_on_ns for each in rounds)
    if at_least_ns > at_most_ns:
        return None
    apart_ns = (at_least_ns + at_most_ns) / 2
    return Ways(
        [each.went_on_ns + apart_ns - each.released_ns for each in rounds],
        [each.seen_ns - each.went_on_ns - apart_ns for each in rounds],
        (at_most_ns - at_least_ns) / 2,
    )


def measure_latency(core: HostFlagCore, stream: DeviceStream) -> Figures:
    """Host's store -> stream -> host, with 60 KiB of reply and without, and each of the two ways."""
    set_words(core, 0)
    measurement = _Measurement(core, stream)
    figures: Figures = {}
    for name, with_reply in (("wordsOnly", False), ("with60KiBReply", True)):
        rounds = [each for batch in measurement.batches(with_reply=with_reply) for each in batch]
        figures[name] = Distribution.of([each.seen_ns - each.released_ns for each in rounds]).as_json()
    try:
        measurement.make_events()
    except CheckFailedError as error:
        return figures | {"ways": {"notMeasured": str(error)}}
    split = [split_ways(batch) for batch in measurement.batches(with_reply=False)]
    return figures | {"ways": _figures_of([ways for ways in split if ways is not None])}


def _figures_of(batches: list[Ways]) -> Figures:
    if not batches:
        return {"notMeasured": "the clocks of host and device contradict each other"}
    return {
        "hostToStream": Distribution.of([ns for ways in batches for ns in ways.to_stream_ns]).as_json(),
        "streamToHost": Distribution.of([ns for ways in batches for ns in ways.to_host_ns]).as_json(),
        "uncertainNs": round(max(ways.uncertain_ns for ways in batches)),
    }


class _Measurement:
    """Plays rounds that are queued a batch at a time; times when the stream goes on once there are events."""

    def __init__(self, core: HostFlagCore, stream: DeviceStream) -> None:
        self._core = core
        self._stream = stream
        self._next_round = 1
        self._events: list[object] = []

    def make_events(self) -> None:
        """From now on each round has an event, and each batch one before it.

        Raises:
            CheckFailedError: the driver has none.
        """
        self._events = [self._stream.make_event() for _ in range(BATCH + 1)]

    def batches(self, *, with_reply: bool) -> list[list[TimedRound]]:
        """As many batches as there is time for, at least one."""
        made: list[list[TimedRound]] = []
        end = time.monotonic() + SECONDS
        while len(made) < BATCHES and (not made or time.monotonic() < end):
            made.append(self._batch(with_reply=with_reply))
        return made

    def _batch(self, *, with_reply: bool) -> list[TimedRound]:
        rounds = range(self._next_round, self._next_round + BATCH)
        self._next_round += BATCH
        before, *events = self._events or [None] * (BATCH + 1)
        if before is not None:
            self._stream.record(before)
        for round_number, event in zip(rounds, events, strict=True):
            self._stream.queue_round(round_number, with_reply=with_reply, released_event=event)
        times = [self._time(round_number) for round_number in rounds]
        went_on = [0.0 if event is None else self._stream.elapsed_ns(before, event) for event in events]
        return [
            TimedRound(released_ns, went_on_ns, seen_ns)
            for (released_ns, seen_ns), went_on_ns in zip(times, went_on, strict=True)
        ]

    def _time(self, round_number: int) -> tuple[int, int]:
        """When the round was released, and when its consumption was seen, in ns."""
        self._stream.expect_gathered(round_number)
        released_ns = time.monotonic_ns()
        self._core.release(round_number)
        self._stream.expect_consumed(round_number)
        return released_ns, time.monotonic_ns()
