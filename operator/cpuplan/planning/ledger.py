"""A node's ledger: every deployment of the node planned together, as one pure function.

1. A deployment without neighbours gets exactly what plan_deployment gives it.
2. Pinned cores of different deployments never overlap; a neighbour never gets a sibling thread.
3. A further deployment on a GPU takes that GPU's next free steps, from the bottom and from the top.
4. What was planned stays: pins change only when the deployment's own mask, devices or setting change, or
   its node was booted anew. Neighbours coming and going move nothing; what pins nothing for a rule of the
   administrator's is planned anew when that rule is another one.
5. Newcomers are planned by pod creation time, then UID, then place in the pod.
6. No mask of the node is ever pinned whole.

The memory of the ledger is what stands on the pods (`DeploymentRequest.previous`); there is no other state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..model import reasons
from ..model.cpulist import format_cpu_list
from ..model.errors import CpuPlanError
from ..model.plan import CpuPlan, usable_count
from ..model.podplan import ContainerPlan, Status, WorkerPlan
from ..model.request import DeploymentRequest
from ..model.topology import HostGpu, HostTopology, with_core_mates
from .budget import budget_of
from .confidence import Level, judge_topology
from .cores import Geometry
from .deployment import Neighbours, plan_deployment
from .setting import AUTO, OFF, parse_setting
from .standing import holds_still, is_for_other_rules, is_sound, is_waiting, lacks_places

Key = tuple[str, str]
"""Pod UID and container name."""

NO_CPUS: frozenset[int] = frozenset()

ASK_AGAIN = "to ask again later, remove step_thread_core and, once cpuplan.dev/status is gone, set it anew"
"""The way out of what neighbours or a rule of the node refuse, since nothing is planned anew when they change."""


@dataclass(frozen=True, slots=True)
class NodeRules:
    """What the node's administrator decided.

    `most_pinned_per_pod` bounds the CPUs that one pod's containers pin together; None does not.
    """

    is_pinnable: bool = True
    most_pinned_per_pod: int | None = None


DEFAULT_RULES = NodeRules()


def plan_node(
    requests: Iterable[DeploymentRequest], topology: HostTopology, rules: NodeRules = DEFAULT_RULES
) -> dict[Key, ContainerPlan]:
    """The plan of every deployment of the node, by its key; independent of the order of `requests`.

    1. Deployments whose plan still holds keep it; where two such plans overlap, the later gives way.
    2. Newcomers are planned one after another, beside all that is held by then.
    3. Every plan gets the CPUs its pools may float on: its mask less all pinned cores.
    """
    ordered = sorted(requests, key=lambda request: request.order)
    book = _Book(ordered, topology, rules)
    newcomers = [request for request in ordered if not book.keep(request)]
    for request in newcomers:
        book.plan(request)
    return book.close()


# From the least.
_TRUST = tuple(map(str, (Level.UNKNOWN, Level.SUSPICIOUS, Level.CONSISTENT)))

# Reasons that cores which others hold can cause.
_FOR_LACK_OF_CORES = frozenset({reasons.CONFLICT, reasons.NO_CORE_LEFT, reasons.TOO_FEW_CORES_ABOVE})


class _Book:
    """The ledger while it is written: who holds what, and the plans so far."""

    def __init__(self, requests: Sequence[DeploymentRequest], topology: HostTopology, rules: NodeRules) -> None:
        self._requests = requests
        self._topology = topology
        self._core_mates = topology.core_mates()
        self._rules = rules
        self._confidences: dict[tuple[HostGpu, ...], str] = {}
        self._plans: dict[Key, ContainerPlan] = {}
        self._holders: dict[int, DeploymentRequest] = {}
        self._pinned: frozenset[int] = NO_CPUS
        self._geometries: dict[tuple[HostGpu, ...], Geometry] = {}

    def keep(self, request: DeploymentRequest) -> bool:
        """Whether the plan on the pod was entered as it stands (with a new quota at most)."""
        previous = request.previous
        if previous is None or not holds_still(request):
            return False
        if not is_sound(previous) or previous.pinned & self._holders.keys():
            return False
        are_devices_seen = not is_waiting(request)
        if are_devices_seen and is_for_other_rules(previous, self._rules.most_pinned_per_pod):
            return False
        quota = request.quota if are_devices_seen else previous.quota
        confidence, planned_confidence = previous.confidence, previous.planned_confidence
        if are_devices_seen and not lacks_places(request):
            confidence, planned_confidence = self._kept_confidence(previous, request)
        kept = replace(
            previous,
            quota=quota,
            usable=usable_count(len(previous.mask), quota),
            confidence=confidence,
            planned_confidence=planned_confidence,
            withheld=request.withheld if are_devices_seen else previous.withheld,
        )
        self._enter(request, _with_shortage(kept))
        return True

    def plan(self, request: DeploymentRequest) -> None:
        """Enters the plan of a newcomer."""
        self._enter(request, self._as_published(request, *self._decide(request)))

    def close(self) -> dict[Key, ContainerPlan]:
        """All plans, each with the CPUs its pools may float on."""
        held = frozenset(self._holders)
        return {key: replace(plan, pool_cpus=_pool_cpus(plan, held)) for key, plan in self._plans.items()}

    def _decide(self, request: DeploymentRequest) -> tuple[CpuPlan, str, str]:
        """The plan of a newcomer with its reason and sentence; unpinned where it cannot be had."""
        usable = usable_count(len(request.mask), request.quota)
        nothing = CpuPlan(request.mask, usable)
        try:
            setting = parse_setting(request.setting)
            if setting != OFF and request.refusal is not None:
                return nothing, request.refusal.reason, request.refusal.why
            plan = plan_deployment(
                setting,
                [worker.address for worker in request.workers],
                mask=request.mask,
                usable=usable,
                geometry=self._geometry(request),
                is_pinnable=self._rules.is_pinnable,
                neighbours=Neighbours(frozenset(self._holders), self._name_holder),
            )
        except CpuPlanError as error:
            reason, why = _as_node_reason(error, request)
            return nothing, reason, self._with_way_out(request, reason, why)
        objection = self._objection(request, plan)
        if objection is not None:
            reason, why = objection
            return nothing, reason, f"{why}; {ASK_AGAIN}"
        return plan, plan.reason, self._with_way_out(request, plan.reason, plan.why)

    def _with_way_out(self, request: DeploymentRequest, reason: str, why: str) -> str:
        """The sentence, and how to ask again where it may be others that leave no core."""
        is_beside_others = not self._holders.keys().isdisjoint(request.mask)
        return f"{why}; {ASK_AGAIN}" if reason in _FOR_LACK_OF_CORES and is_beside_others else why

    def _objection(self, request: DeploymentRequest, plan: CpuPlan) -> tuple[str, str] | None:
        """Why the node cannot grant a plan that would be right for the deployment alone."""
        if not plan.pinned:
            return None
        wanted = format_cpu_list(plan.pinned)
        most = self._rules.most_pinned_per_pod
        if most is not None:
            siblings = (p for (uid, _), p in self._plans.items() if uid == request.pod.uid)
            already = sum(len(p.pinned) for p in siblings)
            if already + len(plan.pinned) > most:
                return reasons.OVER_SHARE, (
                    f"nothing is pinned: pinning {wanted} would make {already + len(plan.pinned)} pinned CPUs "
                    f"for the pod, this node allows {most} (agent.maxPinnedPerPod)"
                )
        pinned = self._pinned | plan.pinned
        for other in self._requests:
            if other.mask and other.mask <= pinned and not other.mask <= self._pinned:
                return reasons.WOULD_PIN_ALL, (
                    f"nothing is pinned: pinning {wanted} would leave no unpinned CPU "
                    f"in the mask of {other} ({format_cpu_list(other.mask)})"
                )
        return None

    def _enter(self, request: DeploymentRequest, plan: ContainerPlan) -> None:
        self._plans[request.key] = plan
        self._pinned |= plan.pinned
        for cpu in with_core_mates(plan.pinned, self._core_mates):
            self._holders.setdefault(cpu, request)

    def _name_holder(self, cpu: int) -> str:
        return str(self._holders[cpu])

    def _gpus(self, request: DeploymentRequest) -> tuple[HostGpu, ...]:
        return self._topology.gpus_like(worker.address for worker in request.workers)

    def _confidence(self, request: DeploymentRequest) -> str:
        gpus = self._gpus(request)
        if gpus not in self._confidences:
            self._confidences[gpus] = str(judge_topology(self._topology, gpus).level)
        if not gpus and any(worker.address for worker in request.workers):
            return str(Level.UNKNOWN)
        return self._confidences[gpus]

    def _kept_confidence(self, previous: ContainerPlan, request: DeploymentRequest) -> tuple[str, str]:
        """The confidence of now, but no higher than when the pins were chosen; and the one of then, where it is higher.

        An override since then has not moved the pins, and a topology that lacked something for a while has not either.
        """
        now, then = self._confidence(request), previous.planned_confidence or previous.confidence
        if not previous.pinned or then not in _TRUST:
            return now, ""
        kept = min(then, now, key=_TRUST.index)
        return kept, "" if kept == then else then

    def _geometry(self, request: DeploymentRequest) -> Geometry:
        gpus = self._gpus(request)
        if gpus not in self._geometries:
            self._geometries[gpus] = Geometry(gpus, self._topology.siblings_of)
        return self._geometries[gpus]

    def _as_published(self, request: DeploymentRequest, plan: CpuPlan, reason: str, why: str) -> ContainerPlan:
        steps = [step for step in plan.workers if step is not None]
        pins = [(step.cpus, step.why) for step in steps] or [(NO_CPUS, "")] * len(request.workers)
        published = ContainerPlan(
            setting=request.setting,
            mask=request.mask,
            quota=request.quota,
            usable=plan.usable,
            devices=request.devices,
            workers=tuple(
                WorkerPlan(worker.address, worker.device_id, cpus, sentence)
                for worker, (cpus, sentence) in zip(request.workers, pins, strict=True)
            ),
            result=plan.result,
            pool_cpus=NO_CPUS,
            confidence=self._confidence(request),
            reason=reason,
            why=why,
            withheld=request.withheld,
            most_pinned=self._rules.most_pinned_per_pod if reason == reasons.OVER_SHARE else None,
        )
        return _with_shortage(published)


def _as_node_reason(error: CpuPlanError, request: DeploymentRequest) -> tuple[str, str]:
    """The reason and sentence of a setting's error; a CPU that was planned and left the mask is `cpu-gone`."""
    previous = request.previous
    was_pinned = previous is not None and previous.status is Status.PINNED and previous.setting == request.setting
    if error.reason != reasons.OUTSIDE_MASK or request.setting == AUTO:
        return error.reason, str(error)
    number = parse_setting(request.setting)
    notes = [f"CPU {number} is withheld from plans: {w.why}" for w in request.withheld if number in w.cpus]
    if was_pinned:
        notes.append("it was in the mask when this pod was planned")
    reason = reasons.CPU_GONE if was_pinned else reasons.OUTSIDE_MASK
    return reason, f"{error} ({'; '.join(notes)})" if notes else str(error)


def _with_shortage(plan: ContainerPlan) -> ContainerPlan:
    """The plan with the sentence that its quota is too small for its workers, where it is; `off` asks for no advice."""
    is_asked = plan.reason != reasons.OFF and plan.workers
    shortage = budget_of(plan.as_cpu_plan(), len(plan.workers)).shortage if is_asked else None
    return plan if plan.shortage == (shortage or "") else replace(plan, shortage=shortage or "")


def _pool_cpus(plan: ContainerPlan, held: frozenset[int]) -> frozenset[int]:
    """The mask less every pinned core of the node; less only its own pins where that leaves nothing."""
    return (plan.mask - held) or (plan.mask - plan.pinned)
