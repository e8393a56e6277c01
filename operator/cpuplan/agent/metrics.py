"""What the agent counts, for Prometheus. Names begin with cpuplan_agent_."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ..model.podplan import ContainerPlan

_PREFIX = "cpuplan_agent_"
_REPLAN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_DELAY_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)

WRITTEN = "written"
REFUSED = "refused"
FAILED = "failed"
OUTDATED = "outdated"


class AgentMetrics:
    """All metrics of one agent in one registry."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._patches = Counter(
            f"{_PREFIX}patches_total",
            "Patches of pods: written, refused (RBAC or an admission policy), outdated (the pod is gone or another), "
            "failed (no answer).",
            ["result"],
            registry=self.registry,
        )
        self._plans = Gauge(
            f"{_PREFIX}plans", "Planned containers of the node, by reason code.", ["reason"], registry=self.registry
        )
        self._pinned = Gauge(f"{_PREFIX}pinned_cpus", "CPUs of the node that plans pin.", registry=self.registry)
        self._waiting = Gauge(
            f"{_PREFIX}waiting_pods", "Pods whose devices the kubelet does not show yet.", registry=self.registry
        )
        self._replan_seconds = Histogram(
            f"{_PREFIX}replan_seconds",
            "How long reading and planning the node takes, without writing.",
            buckets=_REPLAN_BUCKETS,
            registry=self.registry,
        )
        self._delay_seconds = Histogram(
            f"{_PREFIX}plan_delay_seconds",
            "From the event that made a plan necessary to the written plan.",
            buckets=_DELAY_BUCKETS,
            registry=self.registry,
        )
        self._kubelet_errors = Counter(
            f"{_PREFIX}podresources_errors_total", "Questions the kubelet did not answer.", registry=self.registry
        )
        self._watch_errors = Counter(
            f"{_PREFIX}watch_errors_total", "Lists and watches of pods that failed.", registry=self.registry
        )
        self._replan_errors = Counter(
            f"{_PREFIX}replan_errors_total", "Plans of the node that failed unexpectedly.", registry=self.registry
        )
        self._override_missing = Gauge(
            f"{_PREFIX}topology_override_missing",
            "1 where the node has no file at the path of the topology override.",
            registry=self.registry,
        )
        self._reasons: set[str] = set()
        for result in (WRITTEN, REFUSED, FAILED, OUTDATED):
            self._patches.labels(result)

    def patched(self, result: str) -> None:
        """A patch ended so."""
        self._patches.labels(result).inc()

    def plan_written(self, delay_seconds: float) -> None:
        """A plan was written this long after the event that made it necessary."""
        self._delay_seconds.observe(delay_seconds)

    def replanned(self, seconds: float, plans: Iterable[ContainerPlan], waiting_count: int) -> None:
        """The node was planned with this outcome."""
        self._replan_seconds.observe(seconds)
        self._waiting.set(waiting_count)
        counts = dict.fromkeys(self._reasons, 0)
        pinned: set[int] = set()
        for plan in plans:
            counts[plan.reason] = counts.get(plan.reason, 0) + 1
            pinned |= plan.pinned
        for reason, count in counts.items():
            self._plans.labels(reason).set(count)
        self._reasons = set(counts)
        self._pinned.set(len(pinned))

    def override_is_missing(self) -> None:
        """A topology override is configured, and this node has none."""
        self._override_missing.set(1)

    def kubelet_failed(self) -> None:
        """The kubelet did not answer."""
        self._kubelet_errors.inc()

    def watch_failed(self) -> None:
        """A list or watch of pods failed."""
        self._watch_errors.inc()

    def replan_failed(self) -> None:
        """Planning ended in an exception that nobody expected."""
        self._replan_errors.inc()
