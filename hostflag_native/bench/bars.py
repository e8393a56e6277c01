"""What the hand-off promises of its speed, and whether this run kept it."""

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from hostflag_native.bench.contestants import NAP_NS, Label, Pair
from hostflag_native.bench.costs import Waiting
from hostflag_native.bench.figures import Figures
from hostflag_native.core import HostFlagCore

P50_OVER_LIMIT: Final = 1.15
P99_OVER_LIMIT: Final = 1.5
PUBLISH_OVER_COPY: Final = 1.2
EVENTS_OVER_PYTHON: Final = 10.0
NAP_CPU_PERCENT: Final = 3.0
WAKE_US: Final = NAP_NS / 1000 + 20
IDLE_WAKE_US: Final = HostFlagCore.longest_idle_nap_us + 20
LATE_AFTER_POLL_US: Final = 1000.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One promise: a value that must be at most, or at least, a bound."""

    name: str
    value: float
    bound: float
    unit: str = ""
    is_at_least: bool = False

    @property
    def is_met(self) -> bool:
        """Whether the promise was kept."""
        return bool((operator.ge if self.is_at_least else operator.le)(self.value, self.bound))

    def as_json(self) -> dict[str, Any]:
        """The bar and whether it was met."""
        return {
            "name": self.name,
            "value": round(self.value, 3),
            "bound": self.bound,
            "unit": self.unit,
            "atLeast": self.is_at_least,
            "met": self.is_met,
        }


def bars(figures: Figures) -> tuple[Bar, ...]:
    """All bars whose rows were measured."""
    return (*_of_round_trips(figures), *_of_naps(figures), *_of_costs(figures))


def _of_round_trips(figures: Figures) -> Iterator[Bar]:
    for pair in Pair:
        row = figures.row(pair, Label.HANDOFF)
        ratios = None if row is None else figures.ratios(row)
        if ratios is not None:
            yield Bar(f"round trip over the limit, p50, {pair}", ratios[0], P50_OVER_LIMIT)
            yield Bar(f"round trip over the limit, p99, {pair}", ratios[1], P99_OVER_LIMIT)
    for pair, label in ((Pair.THREADS, Label.THREADING_EVENT), (Pair.PROCESSES, Label.PROCESS_EVENT)):
        event = figures.row(pair, label)
        for rival in (Label.PYTHON, Label.PYTHON_BOTH):
            row = figures.row(pair, rival)
            if event is not None and row is not None:
                ratio = event.times.p50_ns / row.times.p50_ns
                yield Bar(f"{label} over {rival}, p50", ratio, EVENTS_OVER_PYTHON, is_at_least=True)


def _of_naps(figures: Figures) -> Iterator[Bar]:
    """Each state is held against both bounds: naps of 50 us, and the longer ones of an idle wait."""
    yield Bar("CPU of a wait that naps 50 us", figures.cpu_share(Waiting.NAP) * 100, NAP_CPU_PERCENT, "%")
    yield Bar("CPU of an idle wait", figures.cpu_share(Waiting.IDLE_NAP) * 100, NAP_CPU_PERCENT, "%")
    if not figures.conditions.can_set_timer_slack:
        return
    for pair in Pair:
        row = figures.row(pair, Label.NAP_THERE)
        if row is not None:
            yield Bar(f"wake from naps of 50 us, p50, {pair}", row.times.p50_ns / 1000, WAKE_US, "us")
    yield Bar("wake of an idle wait, p50", figures.idle_wakes.p50_ns / 1000, IDLE_WAKE_US, "us")


def _of_costs(figures: Figures) -> Iterator[Bar]:
    yield Bar("publish of 4 KiB over memcpy and a store, p50", figures.publish.p50_over_limit, PUBLISH_OVER_COPY)
    late = figures.lateness
    yield Bar("watchdog, earliest after the deadline", late.since_gathered.min_ns / 1000, 0, "us", is_at_least=True)
    bound_us = late.poll_ns / 1000 + LATE_AFTER_POLL_US
    yield Bar("watchdog, lateness, p99.9", late.since_gathered.p999_ns / 1000, bound_us, "us")
