"""One pass: everything that follows from the pods as they are now, written where it differs.

Blocking; call from one thread.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..kube.errors import KubeError
from .announcements import finding_announcement, plan_announcement
from .eventposter import EventPoster
from .findings import Finding, Surroundings, count_by_kind, findings_of, is_overdue
from .indexstore import IndexStore
from .metrics import OperatorMetrics
from .nodes import NodeKnowledge
from .observed import ObservedPod
from .packing import Share, node_shares
from .planfacts import PlanFacts, PlanHistory, facts_in_index, facts_of
from .startup import AgentPod

OLD_PLAN_SECONDS = 3000.0
"""A plan this old when the process starts was announced by an earlier one; its Event may have expired (after one
hour by default), and would come a second time."""

ANNOUNCED_SECONDS = 300.0
"""A plan this old that the index tells as it is was announced too: the pass that wrote it, or one soon after, did."""

DELETION_GRACE_SECONDS = 60.0
"""A pod that is still there this long after its deletion was due has no kubelet to end it: its plan is void."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Times that findings depend on, in seconds: for a plan to come, and of the init container at each start."""

    plan_seconds: float
    init_seconds: float


class Reconciler:
    """Brings ConfigMap, Events and metrics to what the pods say."""

    def __init__(
        self,
        store: IndexStore,
        poster: EventPoster,
        nodes: NodeKnowledge,
        metrics: OperatorMetrics,
        *,
        waits: Waits,
    ) -> None:
        self._store = store
        self._poster = poster
        self._nodes = nodes
        self._metrics = metrics
        self._waits = waits
        self._history = PlanHistory()

    def refresh(self) -> None:
        """Learns the nodes anew, and has the next pass look at the ConfigMaps themselves.

        Raises:
            KubeError: the API server did not answer.
        """
        self._store.forget()
        self._nodes.list_all()

    def adopt(self, pods: Iterable[ObservedPod], now: float) -> None:
        """Notes what an earlier process saw and announced, from the index and the pods as this one finds them.

        The index tells what the agents' time stamps do not: whether the last write changed what is worth an Event.
        """
        told: dict[str, PlanFacts] = {}
        # Without the index the time stamps have to do; the next pass meets the same failure, and tells it.
        with contextlib.suppress(KubeError):
            told.update(facts for text in self._store.texts() for facts in facts_in_index(text))
        for uid, facts in told.items():
            self._history.remember(uid, facts)
        announced = [plan_announcement(pod) for pod in pods if _is_announced(pod, told, now)]
        self._poster.assume_posted((a for a in announced if a is not None), now)

    def reconcile(self, pods: Sequence[ObservedPod], now: float) -> bool:
        """Writes the index, then Events, then metrics; a part that fails does not keep back the others.

        Returns:
            Whether Events are left for a next pass.

        Raises:
            KubeError: of the first part that failed; the next pass tries again.
        """
        failures: list[KubeError] = []
        _attempt(failures, lambda: self._nodes.ask_about(pods, now))
        _attempt(failures, lambda: self._write_index(pods, now))
        found = self._find(pods, now, failures)
        _attempt(failures, lambda: self._post_events(pods, found, now))
        self._metrics.set_pods(pods)
        self._metrics.set_findings(count_by_kind(finding for _, finding in found))
        self._metrics.set_index(self._store.size())
        if failures:
            raise failures[0]
        return self._poster.has_waiting

    def _write_index(self, pods: Iterable[ObservedPod], now: float) -> None:
        entries: dict[str, list[str]] = {}
        for pod in pods:
            if self._is_indexed(pod, now):
                entries.setdefault(pod.node, []).append(pod.index_entry)
        shares: list[Share] = [share for node, held in entries.items() for share in node_shares(node, held)]
        self._metrics.count_index_writes(self._store.write(shares))

    def _is_indexed(self, pod: ObservedPod, now: float) -> bool:
        is_held_up = pod.deletion_due is not None and now - pod.deletion_due >= DELETION_GRACE_SECONDS
        has_plan = bool(pod.index_entry and pod.node) and not pod.has_ended
        return has_plan and not is_held_up and not self._nodes.is_gone(pod.node)

    def _find(
        self, pods: Iterable[ObservedPod], now: float, failures: list[KubeError]
    ) -> list[tuple[ObservedPod, Finding]]:
        agents: list[Mapping[str, AgentPod] | None] = [None]
        if any(is_overdue(pod, now, self._waits.plan_seconds) for pod in pods):
            _attempt(failures, lambda: agents.append(self._nodes.agents(now)))
        around = Surroundings(
            now=now,
            plan_wait_seconds=self._waits.plan_seconds,
            boot_ids=self._nodes.boot_ids,
            agents=agents[-1],
            init_wait_seconds=self._waits.init_seconds,
        )
        return [(pod, finding) for pod in pods for finding in findings_of(pod, around)]

    def _post_events(
        self, pods: Iterable[ObservedPod], found: Iterable[tuple[ObservedPod, Finding]], now: float
    ) -> None:
        living = [pod for pod in pods if not pod.has_ended]
        plans = [plan_announcement(pod, self._history.before(pod)) for pod in living]
        self._history.keep_only(pod.uid for pod in living)
        posting = self._poster.post(
            (announcement for announcement in plans if announcement is not None),
            (finding_announcement(pod, finding) for pod, finding in found),
            now,
        )
        self._metrics.count_events(posting)
        if posting.failure is not None:
            raise posting.failure


def _is_announced(pod: ObservedPod, told: Mapping[str, PlanFacts], now: float) -> bool:
    """Whether the plan that the pod has was announced before this process started."""
    if pod.planned_at is None:
        return False
    age_seconds = now - pod.planned_at
    if pod.uid in told:
        return age_seconds >= ANNOUNCED_SECONDS and told[pod.uid] == facts_of(pod)
    return age_seconds >= OLD_PLAN_SECONDS


def _attempt(failures: list[KubeError], part: Callable[[], None]) -> None:
    try:
        part()
    except KubeError as error:
        failures.append(error)
