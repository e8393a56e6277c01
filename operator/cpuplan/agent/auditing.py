"""The audit of the node's GPU containers, planned or not: made every so often, nothing written."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from prometheus_client import CollectorRegistry, Gauge

from ..kube.annotations import is_planned, plan_in
from ..kube.pods import Container, ContainerKind, Pod
from ..model.errors import CpuPlanError
from ..planning.audit import AUDIT_VERSION, TESTS, Audited, GpuUser, audit
from .assigned import PodDevices
from .containers import NodeState
from .masks import NO_CPUS, CpuSources, cpu_grant
from .nodefacts import NodeFacts

AUDIT_SECONDS = 10.0
"""Shortest time between two audits: each reads the cgroups of all GPU containers."""

_log = logging.getLogger(__name__)


class AuditMetrics:
    """How many GPU containers the node has, and at how many each test failed; as many series as tests, twice."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._users = Gauge(
            "cpuplan_agent_audit_gpu_containers",
            "Running containers of the node that have devices, by whether their pod asks for a plan.",
            ["planned"],
            registry=registry,
        )
        self._findings = Gauge(
            "cpuplan_agent_audit_findings",
            "Running containers with devices at which the test failed.",
            ["test", "planned"],
            registry=registry,
        )

    def audited(self, audited: Sequence[Audited]) -> None:
        """The node was audited with this outcome."""
        for label in ("no", "yes"):
            users = [user for user in audited if user.is_planned == (label == "yes")]
            self._users.labels(label).set(len(users))
            failed = Counter(test for user in users for test in {finding.test for finding in user.findings})
            for test in TESTS:
                self._findings.labels(test, label).set(failed[test])


class NodeAuditor:
    """Audits one node, and keeps the last audit for whoever asks, from any thread."""

    def __init__(
        self,
        node_name: str,
        facts: NodeFacts,
        metrics: AuditMetrics,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node_name = node_name
        self._facts = facts
        self._metrics = metrics
        self._monotonic = monotonic
        self._latest: tuple[float, tuple[Audited, ...]] | None = None
        self._due_at: float | None = None

    def look(self, pods: Iterable[Pod], state: NodeState) -> None:
        """Audits the pods of the node; not again within AUDIT_SECONDS, which is then due later."""
        now = self._monotonic()
        if self._latest is not None and now - self._latest[0] < AUDIT_SECONDS:
            self._due_at = self._latest[0] + AUDIT_SECONDS
            return
        self._due_at = None
        # The masks as they are: what a plan has to leave alone is still where unpinned threads run.
        as_granted = replace(state, cpus=replace(state.cpus, isolated=NO_CPUS, reserved=NO_CPUS))
        audited = tuple(found for pod in pods for found in self._audit_pod(pod, as_granted))
        self._latest = (now, audited)
        self._metrics.audited(audited)

    @property
    def due_seconds(self) -> float | None:
        """After how long an audit that came too early is made; None when none is due."""
        return None if self._due_at is None else max(0.0, self._due_at - self._monotonic())

    def document(self) -> str:
        """The last audit as JSON; empty before the first."""
        latest = self._latest
        if latest is None:
            return ""
        made_at, audited = latest
        return json.dumps(
            {
                "version": AUDIT_VERSION,
                "node": self._node_name,
                "secondsOld": round(self._monotonic() - made_at, 1),
                "containers": [found.to_document() for found in audited],
            }
        )

    def _audit_pod(self, pod: Pod, state: NodeState) -> list[Audited]:
        """What was found at one pod; one that cannot be understood never stops the others."""
        try:
            return [
                audit(user, self._facts.topology(device.address for device in user.devices if device.address))
                for user in gpu_users(pod, self._facts, state)
            ]
        except Exception:  # noqa: BLE001 - whatever one pod holds, the audit of the others stands
            _log.exception("a pod cannot be audited pod=%s", pod.key)
            return []


def gpu_users(pod: Pod, facts: NodeFacts, state: NodeState) -> Iterator[GpuUser]:
    """The pod's running containers with devices, as they are now; a claim for something else is no device."""
    containers = [container for container in pod.containers if _uses_gpus(container, state)]
    if not containers or pod.is_ended:
        return
    known = PodDevices(pod, containers, assignments=state.assignments, resources=state.resources, sources=facts)
    for container in containers:
        found = known.find(container)
        if not state.resources.asked_by(container) and not found.devices and found.waiting is None:
            continue
        sources = CpuSources(known.assignment, facts.cgroup(pod, container))
        grant = cpu_grant(pod, container, node=state.cpus, sources=sources)
        yield GpuUser(
            namespace=pod.namespace,
            name=f"{pod.name} container {container.name}",
            devices=found.devices,
            trouble="" if found.waiting is None else found.waiting.why,
            mask=grant.mask,
            quota=grant.quota,
            pools=container.pools,
            is_planned=is_planned(pod.annotations),
            is_pinned=_is_pinned(pod, container, state.boot_id),
        )


def _uses_gpus(container: Container, state: NodeState) -> bool:
    return (
        container.kind is not ContainerKind.INIT
        and container.is_running
        and state.resources.may_have_devices(container)
    )


def _is_pinned(pod: Pod, container: Container, boot_id: str) -> bool:
    """Whether a plan that stands on the pod, made for it in this boot, pins the container's step threads."""
    try:
        plan = plan_in(pod.annotations)
    except CpuPlanError:
        return False
    if plan is None or (plan.pod_uid, plan.boot_id) != (pod.uid, boot_id):
        return False
    own = plan.container(container.name)
    return own is not None and bool(own.pinned)
