"""Everything one run measured, as a value and as JSON."""

from dataclasses import dataclass
from typing import Any

from hostflag_native.bench.contestants import Label, Pair
from hostflag_native.bench.costs import Lateness, PublishCost, Waiting, WaitingCost
from hostflag_native.bench.machine import Machine
from hostflag_native.bench.slices import Row
from hostflag_native.probe import Distribution


@dataclass(frozen=True, slots=True)
class Conditions:
    """What else went on during the run.

    Attributes:
        load_before, load_after: runnable tasks, mean of a minute.
        throttled_us: how long the cgroup's quota stopped this process.
        stolen_seconds: how long the hypervisor kept the two CPUs from this machine.
        can_set_timer_slack: False where naps are stretched by the default slack.
        slice_count: slices per contestant.
        seconds: how long the run took.
    """

    load_before: float
    load_after: float
    throttled_us: int
    stolen_seconds: float
    can_set_timer_slack: bool
    slice_count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Figures:
    """One run."""

    machine: Machine
    conditions: Conditions
    rows: tuple[Row, ...]
    publish: PublishCost
    lateness: Lateness
    waiting: tuple[WaitingCost, ...]
    idle_wakes: Distribution

    def row(self, pair: Pair, label: Label) -> Row | None:
        """That row; None if it has no samples."""
        return next((row for row in self.rows if (row.pair, row.label) == (pair, label)), None)

    def limit_of(self, row: Row) -> tuple[float, float] | None:
        """p50 and p99 in ns of the bare ping-pong between the same pair, halved for a one-way row."""
        bare = self.row(row.pair, Label.BARE)
        if bare is None:
            return None
        ways = 2 if row.measure.is_one_way else 1
        return bare.times.p50_ns / ways, bare.times.p99_ns / ways

    def ratios(self, row: Row) -> tuple[float, float] | None:
        """p50 and p99 over their limits."""
        limit = self.limit_of(row)
        return None if limit is None else (row.times.p50_ns / limit[0], row.times.p99_ns / limit[1])

    def cpu_share(self, way: Waiting) -> float:
        """CPU time over wall time of that way to wait."""
        return next(cost.cpu_share for cost in self.waiting if cost.way is way)

    def as_json(self) -> dict[str, Any]:
        """All figures; bars are not in it."""
        return {
            "machine": self.machine.as_json(),
            "conditions": {
                "loadBefore": self.conditions.load_before,
                "loadAfter": self.conditions.load_after,
                "throttledUs": self.conditions.throttled_us,
                "stolenSeconds": round(self.conditions.stolen_seconds, 2),
                "canSetTimerSlack": self.conditions.can_set_timer_slack,
                "sliceCount": self.conditions.slice_count,
                "seconds": round(self.conditions.seconds, 1),
            },
            "rows": [self._row_as_json(row) for row in self.rows],
            "publish4KiB": {
                "publish": self.publish.publish.as_json(),
                "memcpyAndStore": self.publish.copy.as_json(),
                "p50OverLimit": _precise(self.publish.p50_over_limit),
            },
            "watchdog": {
                "deadlineNs": self.lateness.deadline_ns,
                "pollNs": self.lateness.poll_ns,
                "sinceGathered": self.lateness.since_gathered.as_json(),
                "ofNaps": self.lateness.of_naps.as_json(),
                "ownMaxNs": round(self.lateness.own_max_ns),
            },
            "waitingCpuShare": {str(cost.way): round(cost.cpu_share, 5) for cost in self.waiting},
            "idleWakes": self.idle_wakes.as_json(),
        }

    def _row_as_json(self, row: Row) -> dict[str, Any]:
        ratios = self.ratios(row)
        return {
            "pair": str(row.pair),
            "name": str(row.label),
            "measure": "one way" if row.measure.is_one_way else "round trip",
            **row.times.as_json(),
            "p50OverLimit": None if ratios is None else _precise(ratios[0]),
            "p99OverLimit": None if ratios is None else _precise(ratios[1]),
        }


def _precise(value: float) -> float:
    return round(value, 3)
