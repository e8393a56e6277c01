"""Why the node's plans are what they are: kept from the last turn as it was, told of one pod when somebody asks.

A turn only leaves its values here. What is said is made from them when it is asked for, in the asker's thread, of
one pod at a time and by one asker at a time: no question slows the loop by more than one of them takes. An asker
whose turn does not come soon is sent away: whoever reaches the port may ask, and waiting takes a thread.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ..host.root import HostRoot
from ..kube.annotations import SETTING, is_ours, is_planned
from ..kube.pods import Pod
from ..model.podplan import ContainerPlan
from ..model.request import DeploymentRequest
from ..model.topology import HostTopology
from ..planning.agentanswer import ContainerExplained, PodExplained
from ..planning.candidates import candidates_of
from ..planning.explain import explain
from ..planning.explanation import NOTHING, Decision, Topic
from ..planning.ledger import Key
from ..planning.override import Difference, sentences_of
from ..process.endpoints import BusyError, Query, QueryError
from .containers import NodeState, PodRequests, decided_plan
from .grounds import Grounds, node_exclusions

MOST_DIFFERENCES = 64
"""Differences of the topology override that are told: an override names as many GPUs as it likes."""

MOST_WAIT_SECONDS = 1.0
"""For those who asked before: more than ten of the longest answers."""

_TOPIC_ORDER = {topic: place for place, topic in enumerate(Topic)}


@dataclass(frozen=True, slots=True)
class Turn:
    """What the agent saw and decided in one turn.

    Attributes:
        pods: all pods of the node.
        asked: what those that take part in the ledger ask for.
        plans: what the ledger says.
        topology: what it was decided on, None where there was nothing to decide.
        state: the node's CPUs, and what the kubelet assigned.
        differences: where the topology override differs from sysfs.
        troubles: by UID, why the last write to a pod failed.
    """

    pods: tuple[Pod, ...]
    asked: tuple[PodRequests, ...]
    plans: Mapping[Key, ContainerPlan]
    topology: HostTopology | None
    state: NodeState
    differences: tuple[Difference, ...]
    troubles: Mapping[str, str]


class NodeExplainer:
    """Explains the plans of one node, to whoever asks, from any thread.

    Args:
        root: where the agent finds the node's trees.
        placed_by: by GPU address, the file of the topology override that places it.
    """

    def __init__(
        self,
        node_name: str,
        root: HostRoot,
        *,
        placed_by: Mapping[str, str] = NOTHING,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node_name = node_name
        self._root = root
        self._placed_by = placed_by
        self._monotonic = monotonic
        self._latest: tuple[float, Turn] | None = None
        self._one_at_a_time = threading.Lock()

    def look(self, turn: Turn) -> None:
        """Keeps what a turn saw and decided instead of the turn before."""
        self._latest = (self._monotonic(), turn)

    def document(self, query: Query, *, trouble: str = "") -> str:
        """The explanation of the pod `pod` of the namespace `namespace` as JSON; empty before the first turn.

        Args:
            query: of the request.
            trouble: why the agent does not do its work now; empty where it does.

        Raises:
            QueryError: the query names no pod.
            BusyError: others were being answered for MOST_WAIT_SECONDS.
        """
        namespace, name = query.get("namespace"), query.get("pod")
        if not namespace or not name:
            raise QueryError("name a pod: /explain?namespace=NAMESPACE&pod=NAME")
        if not self._one_at_a_time.acquire(timeout=MOST_WAIT_SECONDS):
            raise BusyError("busy with other questions")
        try:
            explained = self.explain_pod(namespace, name, trouble=trouble)
            return "" if explained is None else json.dumps(explained.to_document())
        finally:
            self._one_at_a_time.release()

    def explain_pod(self, namespace: str, name: str, *, trouble: str = "") -> PodExplained | None:
        """What the last turn knew of a pod; None before the first."""
        latest = self._latest
        if latest is None:
            return None
        made_at, turn = latest
        namesakes = [pod for pod in turn.pods if (pod.namespace, pod.name) == (namespace, name)]
        pod = max(namesakes, key=lambda pod: (pod.created, not pod.is_deleting), default=None)
        asked = None if pod is None else next((each for each in turn.asked if each.pod.uid == pod.uid), None)
        generation, notes = 0, [f"the agent is not ready: {trouble}"] if trouble else []
        if pod is None:
            notes.append(f"the agent of node {self._node_name} knows no pod {namespace}/{name} on its node")
        elif asked is None:
            notes.append(_why_not_asked(pod))
        else:
            decided = decided_plan(asked, turn.plans, boot_id=turn.state.boot_id, node_name=self._node_name)
            generation = 0 if decided is None else decided.generation
            notes.extend(_notes(asked, turn, is_new=decided is not asked.published))
        return PodExplained(
            node=self._node_name,
            seconds_old=round(self._monotonic() - made_at, 1),
            uid="" if pod is None else pod.uid,
            generation=generation,
            notes=tuple(notes),
            containers=() if asked is None else tuple(self._containers(asked, turn)),
        )

    def _containers(self, asked: PodRequests, turn: Turn) -> Iterator[ContainerExplained]:
        if turn.topology is None:
            return
        for request in asked.requests:
            plan = turn.plans.get(request.key)
            if plan is not None:
                yield self._container(asked, request, plan, turn, turn.topology)

    def _container(
        self, asked: PodRequests, request: DeploymentRequest, plan: ContainerPlan, turn: Turn, topology: HostTopology
    ) -> ContainerExplained:
        ground, container = asked.grounds.get(request.container), asked.pod.container(request.container)
        grounds = None
        if ground is not None and container is not None:
            grounds = Grounds(asked.pod, container, ground, turn.state.cpus, self._root)
        decision = Decision.of_container(plan)
        sentences = [
            # What was passed over is among the candidates, with everything else.
            *explain(decision, topology, placed_by=self._placed_by, with_rejected=False),
            *(grounds.sentences(plan) if grounds is not None else ()),
            *sentences_of(turn.differences[:MOST_DIFFERENCES]),
        ]
        return ContainerExplained(
            name=request.container,
            plan=plan,
            sentences=tuple(sorted(sentences, key=lambda sentence: _TOPIC_ORDER[sentence.topic])),
            candidates=candidates_of(
                decision,
                topology,
                neighbours=_neighbours(request, turn),
                exclusions=node_exclusions(turn.state.cpus) if grounds is None else grounds.exclusions(),
                placed_by=self._placed_by,
            ),
        )


def _why_not_asked(pod: Pod) -> str:
    """Why a pod of the node takes no part in the ledger."""
    if not is_planned(pod.annotations):
        left = any(map(is_ours, pod.annotations))
        return f"the pod asks for no plan: it has no annotation {SETTING}{'; what is left of one is removed' * left}"
    if pod.is_ended:
        return f"the pod has ended ({pod.phase}): it holds no CPUs, and gets no plan any more"
    return "the pod is being deleted, and was never planned"


def _notes(asked: PodRequests, turn: Turn, *, is_new: bool) -> Iterator[str]:
    """What keeps a pod from a plan, or from showing the one that was decided."""
    if turn.state.assignments is None:
        yield "the kubelet does not answer, so no devices can be seen; plans that stand are kept"
    if asked.trouble:
        yield f"the pod cannot be understood, so it keeps what it holds and is not planned anew: {asked.trouble}"
    elif not asked.is_to_be_written:
        yield "the pod is being deleted: it keeps its CPUs until it is gone, and gets no new plan"
    why = turn.troubles.get(asked.pod.uid)
    if why is not None:
        yield f"the plan could not be written on the pod, it is tried again: {why}"
    elif asked.awaits_devices and asked.published is None:
        yield "the plan is written once the devices are there, or after three seconds without them"
    elif is_new and asked.is_to_be_written:
        yield "the plan was decided in the agent's last turn: the pod shows it in a moment"


def _neighbours(own: DeploymentRequest, turn: Turn) -> dict[str, frozenset[int]]:
    """The CPUs that the other deployments of the node pin, by their names."""
    found: dict[str, frozenset[int]] = {}
    for asked in turn.asked:
        for request in asked.requests:
            plan = turn.plans.get(request.key)
            if plan is not None and plan.pinned and request.key != own.key:
                found[str(request)] = found.get(str(request), frozenset()) | plan.pinned
    return found
