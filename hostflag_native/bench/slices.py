"""Runs the contestants in short slices, one after the other and over again, so that noise hits all alike."""

from dataclasses import dataclass
from typing import Final

from hostflag_native.bench.contestants import NAP_NS, Contestant, Label, Measure, Pair
from hostflag_native.bench.mechanism import STEP_SECONDS, Sent, Slice
from hostflag_native.bench.peers import Peer
from hostflag_native.exchange import Cpus, PinnedThread, without_warm_up
from hostflag_native.probe import Distribution
from hostflag_native.timer_slack import set_timer_slack

MOST_SLICES: Final = 20
"""Slices per contestant. More than a few, since a neighbour's burst spoils some; each still long enough to warm up."""

FEWEST_SLICE_ROUNDS: Final = 4
"""Rounds of a slice, at least: one is left out as warm-up."""

SLICE_BUDGET_NS: Final = 100_000_000
"""Longest time of a slice, in ns: on busy CPUs both sides seldom run at once."""


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured of one contestant."""

    pair: Pair
    label: Label
    measure: Measure
    times: Distribution


@dataclass(frozen=True, slots=True)
class Schedule:
    """How the asked rounds are cut into slices."""

    rounds: int
    cpus: Cpus

    @property
    def slice_count(self) -> int:
        """Slices of each contestant."""
        return max(1, min(MOST_SLICES, self.rounds // FEWEST_SLICE_ROUNDS))

    def part(self, contestant: Contestant, number: int) -> Slice:
        """The slice of that number."""
        asked = int(self.rounds * contestant.effort / self.slice_count)
        return Slice(
            count=max(FEWEST_SLICE_ROUNDS, asked),
            budget_ns=SLICE_BUDGET_NS,
            may_spin=self.cpus[0] != self.cpus[1],
            jitter_ns=NAP_NS * number // self.slice_count,
        )


def measure_pair(pair: Pair, peer: Peer, schedule: Schedule) -> list[Row]:
    """One row for each measure of each contestant, in their order.

    Raises:
        ExchangeFailedError: a side did not answer in time, or died.
    """
    mine = peer.contestants()
    samples: dict[Label, list[int]] = {label: [] for contestant in mine for label, _ in contestant.rows}
    for number in range(schedule.slice_count):
        for turn in range(len(mine)):
            index = (number + turn) % len(mine)
            contestant = mine[index]
            sent, seen = _run_slice(peer, index, schedule.part(contestant, number), schedule.cpus[0])
            for label, measure in contestant.rows:
                samples[label].extend(without_warm_up(measure.of(sent, seen)))
    return [
        Row(pair, label, measure, Distribution.of(samples[label]))
        for contestant in mine
        for label, measure in contestant.rows
        if samples[label]
    ]


def _run_slice(peer: Peer, index: int, part: Slice, cpu: int) -> tuple[Sent, list[int]]:
    mechanism = peer.contestants()[index].mechanism

    def work() -> Sent:
        set_timer_slack()
        return mechanism.ping(part)

    limit_seconds = part.budget_ns / 1e9 + 3 * STEP_SECONDS
    mechanism.prepare(part)
    peer.start(index, part)
    sent = PinnedThread(cpu, work).result(limit_seconds)
    return sent, peer.answer(limit_seconds)
