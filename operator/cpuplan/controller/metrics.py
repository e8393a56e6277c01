"""What the operator counts, for Prometheus. Names begin with cpuplan_operator_."""

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge

from ..model.podplan import Status
from .eventposter import Posting
from .findings import FindingKind
from .indexstore import IndexChange, IndexSize
from .observed import ObservedPod

_PREFIX = "cpuplan_operator_"
WAITING = "Waiting"
"""Label of pods that ask for a plan and have no status yet."""


class OperatorMetrics:
    """All metrics of the process in one registry."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._leading = Gauge(f"{_PREFIX}leading", "1 while this process holds the Lease.", registry=self.registry)
        self._pods = Gauge(
            f"{_PREFIX}pods", "Planned pods that have not ended, by status.", ["status"], registry=self.registry
        )
        self._findings = Gauge(
            f"{_PREFIX}findings", "Pods with something missing or wrong, by kind.", ["kind"], registry=self.registry
        )
        self._configmaps = Gauge(f"{_PREFIX}index_configmaps", "ConfigMaps of the index.", registry=self.registry)
        self._nodes = Gauge(f"{_PREFIX}index_nodes", "Nodes with plans in the index.", registry=self.registry)
        self._bytes = Gauge(f"{_PREFIX}index_bytes", "Keys and values of the index.", registry=self.registry)
        self._index_writes = Counter(
            f"{_PREFIX}index_writes_total", "Writes of ConfigMaps, by verb.", ["verb"], registry=self.registry
        )
        self._events = Counter(
            f"{_PREFIX}events_posted_total", "Events created on pods, by reason.", ["reason"], registry=self.registry
        )
        self._repeats = Counter(
            f"{_PREFIX}events_repeated_total", "Events of standing findings that were renewed.", registry=self.registry
        )
        self._refused = Counter(
            f"{_PREFIX}events_refused_total",
            "Events that the API server did not take; they are tried again.",
            registry=self.registry,
        )
        self._events_waiting = Gauge(
            f"{_PREFIX}events_waiting", "Events that the last pass left for the next one.", registry=self.registry
        )
        self._watch_events = Counter(
            f"{_PREFIX}watch_events_total", "Pod events from the watch, by type.", ["type"], registry=self.registry
        )
        self._unreadable = Counter(
            f"{_PREFIX}unreadable_pods_total", "Pods that could not be parsed.", registry=self.registry
        )
        self._listings = Counter(f"{_PREFIX}listings_total", "Full listings of planned pods.", registry=self.registry)
        self._missed = Counter(
            f"{_PREFIX}missed_changes_total",
            "Pods that a full listing showed otherwise than the watch had.",
            registry=self.registry,
        )
        self._failures = Counter(
            f"{_PREFIX}api_failures_total", "Passes and listings that the API server failed.", registry=self.registry
        )
        self._last_pass = Gauge(
            f"{_PREFIX}last_pass_timestamp_seconds", "When everything was last written.", registry=self.registry
        )
        self._pass_seconds = Gauge(f"{_PREFIX}last_pass_seconds", "How long that took.", registry=self.registry)
        self.set_pods(())
        self.set_findings({})

    def set_leading(self, is_leading: bool) -> None:
        """Whether this process leads."""
        self._leading.set(1 if is_leading else 0)

    def set_pods(self, pods: Iterable[ObservedPod]) -> None:
        """The pods by status."""
        counts = dict.fromkeys((*map(str, Status), WAITING), 0)
        for pod in pods:
            if not pod.has_ended:
                status = pod.status or WAITING
                counts[status] = counts.get(status, 0) + 1
        for status, count in counts.items():
            self._pods.labels(status).set(count)

    def set_findings(self, counts: Mapping[FindingKind, int]) -> None:
        """Findings by kind; kinds that are not named count as none."""
        for kind in FindingKind:
            self._findings.labels(str(kind)).set(counts.get(kind, 0))

    def set_index(self, size: IndexSize) -> None:
        """What the index holds."""
        self._configmaps.set(size.configmap_count)
        self._nodes.set(size.node_count)
        self._bytes.set(size.size_bytes)

    def count_index_writes(self, written: Iterable[IndexChange]) -> None:
        """ConfigMaps written."""
        for change in written:
            self._index_writes.labels(change.verb).inc()

    def count_events(self, posting: Posting) -> None:
        """Events written, refused, and left for later."""
        for reason in posting.reasons:
            self._events.labels(reason).inc()
        self._repeats.inc(posting.repeated_count)
        self._refused.inc(posting.refused_count)
        self._events_waiting.set(posting.waiting_count)

    def count_watch_event(self, kind: str) -> None:
        """One event of the watch; LISTED for those of its listings."""
        self._watch_events.labels(kind).inc()

    def count_unreadable(self) -> None:
        """One pod that could not be parsed."""
        self._unreadable.inc()

    def count_listing(self, missed_count: int) -> None:
        """One full listing, and what the watch had missed."""
        self._listings.inc()
        self._missed.inc(missed_count)

    def count_failure(self) -> None:
        """One pass or listing that the API server failed."""
        self._failures.inc()

    def set_pass(self, ended_at: float, seconds: float) -> None:
        """A pass that wrote everything."""
        self._last_pass.set(ended_at)
        self._pass_seconds.set(seconds)
