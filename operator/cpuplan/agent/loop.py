"""The agent's loop: what is on the node now, what the ledger says, what has to be written.

Its only memory is what stands on the pods: after a restart it sees its own plans there and changes nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ..kube.annotations import HOSTFLAG, annotations_of, is_planned
from ..kube.errors import KubeError
from ..kube.pods import Pod
from ..kube.podwatch import PodChange, PodWatch
from ..model.errors import HostReadError
from ..model.podplan import ContainerPlan, PodPlan
from ..planning.ledger import Key, NodeRules, plan_node
from .auditing import NodeAuditor
from .containers import NodeState, PodRequests, decided_plan, held_by, requests_of
from .explaining import NodeExplainer, Turn
from .metrics import AgentMetrics
from .nodefacts import NodeFacts
from .planned import DeviceResources, concerns_us, holds_cpus
from .podresources import Assignments, PodResourcesClient, PodResourcesError
from .schedule import RESYNC_SECONDS, Schedule
from .settling import MaskSettling
from .verdict import hostflag_annotation
from .writing import PodWriter, patch_of

STALL_SECONDS = 180.0
"""A loop that has not come round for this long hangs: more than the longest write with all its retries."""

REFRESH_SECONDS = 30.0
"""What is remembered of the host (topology, places of devices, slices) is read anew when it is this old."""

QUIET_WAIT_SECONDS = 3.0
"""A pod whose devices come within this time never shows that it waited for them."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeAgentParts:
    """What the loop works with; one set per node, so that many agents fit into one process."""

    node_name: str
    watch: PodWatch
    kubelet: PodResourcesClient
    facts: NodeFacts
    writer: PodWriter
    metrics: AgentMetrics
    settling: MaskSettling
    resources: DeviceResources
    rules: NodeRules
    auditor: NodeAuditor
    explainer: NodeExplainer
    refresh: Callable[[], None]


class NodeAgent:
    """Plans one node until it is stopped."""

    def __init__(
        self,
        parts: NodeAgentParts,
        *,
        resync_seconds: float = RESYNC_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._parts = parts
        self._schedule = Schedule(monotonic(), resync_seconds=resync_seconds)
        self._monotonic = monotonic
        self._turn = threading.Condition()
        self._is_stopped = False
        self._changed_at: dict[str, float] = {}
        self._watch_trouble = ""
        self._kubelet_trouble = "the kubelet has not been asked yet"
        self._plan_trouble = "nothing has been planned yet"
        self._turned_at = self._refreshed_at = monotonic()
        self._waiting_since: dict[str, float] = {}

    def pod_changed(self, change: PodChange) -> None:
        """Told of every change of the node's pods, from the watch's thread."""
        is_planned_pod = concerns_us(change.pod)
        with self._turn:
            now = self._monotonic()
            if is_planned_pod:
                self._changed_at.setdefault(change.pod.uid, now)
            self._schedule.pod_changed(now, is_planned=is_planned_pod)
            self._turn.notify_all()

    def watch_failed(self, error: KubeError) -> None:
        """Told of every failed list or watch, from the watch's thread."""
        self._watch_trouble = str(error)
        self._parts.metrics.watch_failed()

    def run(self) -> None:
        """Plans whenever it is time, until `stop`."""
        while self._wait_for_turn():
            try:
                self.replan()
            except HostReadError as error:
                _log.error("the node cannot be read error=%r", str(error))
                self._turn_failed(str(error))
            except Exception as error:  # noqa: BLE001 - plans that stand stay valid, and the next turn may work
                _log.exception("planning failed, it is tried again")
                self._turn_failed(f"planning failed: {type(error).__name__}: {error}")

    def stop(self) -> None:
        """Ends `run` after the turn it is in."""
        with self._turn:
            self._is_stopped = True
            self._turn.notify_all()

    def trouble_alive(self) -> str:
        """What /healthz says: nothing while the loop turns."""
        silent = self._monotonic() - self._turned_at
        return "" if silent < STALL_SECONDS else f"the loop has not turned for {silent:.0f} s"

    def trouble_ready(self) -> str:
        """What /readyz says: nothing when pods, kubelet and host can be read."""
        if not self._parts.watch.is_synced:
            because = f": {self._watch_trouble}" if self._watch_trouble else ""
            return f"the node's pods have not been listed yet{because}"
        return self._kubelet_trouble or self._plan_trouble

    def replan(self) -> None:
        """One turn: read, plan, write what changed.

        1. The node's pods; those that ended hold nothing, those that are not asked for are cleaned.
        2. What the kubelet assigned, and from it what is to be planned.
        3. The ledger.
        4. One patch per pod whose annotations differ.
        5. What was seen and decided is kept for those who ask why; now and then an audit, of all pods.
        """
        parts = self._parts
        if not parts.watch.is_synced:
            with self._turn:
                self._schedule.turn_ends(self._monotonic(), awaited=frozenset({"the list of pods"}))
            return
        began = self._monotonic()
        if began - self._refreshed_at >= REFRESH_SECONDS:
            self._refreshed_at = began
            parts.refresh()
        all_pods = parts.watch.pods()
        pods = [pod for pod in all_pods if concerns_us(pod)]
        state = NodeState(parts.facts.cpus(), parts.facts.boot_id, self._assignments(), parts.resources)
        asked = self._ask(pods, state)
        requests = parts.settling.settle(request for each in asked for request in each.requests)
        plans: Mapping[Key, ContainerPlan] = {}
        topology = None
        if requests:
            addresses = {w.address for request in requests for w in request.workers if w.address is not None}
            topology = parts.facts.topology(addresses)
            plans = plan_node(requests, topology, parts.rules)
        waiting = frozenset(each.pod.uid for each in asked if each.awaits_devices)
        self._waiting_since = {uid: self._waiting_since.get(uid, began) for uid in waiting}
        parts.metrics.replanned(self._monotonic() - began, plans.values(), len(waiting))
        self._plan_trouble = ""
        for pod in pods:
            if not is_planned(pod.annotations):
                self._clean(pod)
        for each in asked:
            self._publish(each, plans)
        parts.explainer.look(
            Turn(all_pods, tuple(asked), plans, topology, state, parts.facts.differences, parts.writer.troubles())
        )
        parts.auditor.look(parts.watch.pods(), state)
        self._finish_turn(pods, waiting, any(each.may_improve for each in asked))

    def _ask(self, pods: Iterable[Pod], state: NodeState) -> list[PodRequests]:
        """What the pods that are to be planned ask for.

        One that cannot be understood never stops the others, and keeps what it holds: nobody gets its cores.
        """
        asked = []
        for pod in filter(holds_cpus, pods):
            try:
                asked.append(requests_of(pod, self._parts.facts, state))
            except Exception as error:  # noqa: BLE001 - whatever one pod holds, the others still need their plans
                self._parts.metrics.replan_failed()
                _log.exception("a pod cannot be understood and stays as it is pod=%s", pod.key)
                asked.append(held_by(pod, state.boot_id, f"{type(error).__name__}: {error}"))
        return asked

    def _assignments(self) -> Assignments | None:
        try:
            assignments = self._parts.kubelet.list_assignments()
        except PodResourcesError as error:
            self._parts.metrics.kubelet_failed()
            before, self._kubelet_trouble = self._kubelet_trouble, str(error)
            if self._kubelet_trouble != before:
                _log.warning("the kubelet cannot be asked, plans that stand are kept error=%r", str(error))
            return None
        before, self._kubelet_trouble = self._kubelet_trouble, ""
        if before:
            _log.info("the kubelet answers")
        return assignments

    def _publish(self, asked: PodRequests, plans: Mapping[Key, ContainerPlan]) -> None:
        pod, parts = asked.pod, self._parts
        plan = decided_plan(asked, plans, boot_id=parts.facts.boot_id, node_name=parts.node_name)
        if plan is None or not asked.is_to_be_written or self._may_still_wait_quietly(asked):
            return
        wanted = annotations_of(plan)
        verdict = hostflag_annotation(pod, self._parts.facts.boot_id)
        if verdict is not None:
            wanted[HOSTFLAG] = verdict
        patch = patch_of(pod, wanted)
        if patch is None:
            self._changed_at.pop(pod.uid, None)
        elif self._parts.writer.write(pod, patch):
            changed_at = self._changed_at.pop(pod.uid, None)
            if changed_at is not None:
                self._parts.metrics.plan_written(self._monotonic() - changed_at)
            _log_written(pod, plan, is_new=plan is not asked.published)

    def _may_still_wait_quietly(self, asked: PodRequests) -> bool:
        """Whether the pod has no plan yet and only just waits: what it waits for is not worth a write."""
        since = self._waiting_since.get(asked.pod.uid)
        return asked.published is None and since is not None and self._monotonic() - since < QUIET_WAIT_SECONDS

    def _clean(self, pod: Pod) -> None:
        """Removes every trace of ours from a pod that is not asked for any more."""
        self._changed_at.pop(pod.uid, None)
        patch = patch_of(pod, None)
        if patch is not None and self._parts.writer.write(pod, patch):
            _log.info("plan removed pod=%s", pod.key)

    def _finish_turn(self, pods: Iterable[Pod], waiting: frozenset[str], may_improve: bool) -> None:
        """Sets the next turn; what may change without an event is read anew then."""
        parts = self._parts
        uids = frozenset(pod.uid for pod in pods)
        parts.writer.keep_only(uids)
        awaited = set(waiting)
        if may_improve:
            awaited.add("devices without a place")
        if self._kubelet_trouble:
            awaited.add("the kubelet")
        workers = (parts.writer, parts.settling, parts.auditor)
        dues = [due for due in (worker.due_seconds for worker in workers) if due is not None]
        with self._turn:
            self._changed_at = {uid: at for uid, at in self._changed_at.items() if uid in uids}
            self._schedule.turn_ends(
                self._monotonic(), awaited=frozenset(awaited), within_seconds=min(dues, default=None)
            )

    def _turn_failed(self, why: str) -> None:
        """Says so on /readyz and in the metrics, and tries again with growing pauses."""
        self._plan_trouble = why
        self._parts.metrics.replan_failed()
        with self._turn:
            self._schedule.turn_ends(self._monotonic(), awaited=frozenset({"a turn that works"}))

    def _wait_for_turn(self) -> bool:
        """Waits until it is time; False when stopped."""
        with self._turn:
            while not self._is_stopped:
                self._turned_at = self._monotonic()
                left = self._schedule.due - self._turned_at
                if left <= 0:
                    break
                self._turn.wait(left)
            self._schedule.turn_begins()
            return not self._is_stopped


def _log_written(pod: Pod, plan: PodPlan, *, is_new: bool) -> None:
    """One line per container of a new plan; a single one where only annotations beside it were set right."""
    if not is_new:
        _log.info("annotations beside the plan written pod=%s generation=%d", pod.key, plan.generation)
        return
    for name, container in plan.containers:
        _log.info(
            "plan written pod=%s container=%s generation=%d status=%s reason=%s why=%r",
            pod.key,
            name,
            plan.generation,
            container.status,
            container.reason,
            container.why,
        )
