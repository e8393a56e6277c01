"""From a pod, the kubelet's assignments and the container's cgroup to what is to be planned.

Nothing odd about a pod ends here in an exception: it becomes a Refusal, which the ledger publishes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ..host.podcgroups import ContainerCgroup
from ..kube.annotations import CONTAINER, WORKERS, next_plan, plan_in, setting_of
from ..kube.pods import Container, Pod
from ..model import reasons
from ..model.errors import CpuPlanError
from ..model.podplan import ContainerPlan, PodPlan
from ..model.request import DeploymentRequest, PodRef, Refusal, WorkerDevice
from ..planning.ledger import Key
from ..planning.setting import AUTO
from .assigned import DeviceSources, FoundDevices, PodDevices, with_devices
from .masks import NO_CPUS, CpuGrant, CpuSources, NodeCpus, cpu_grant
from .planned import DeviceResources, planned_containers
from .podresources import Assignments
from .workers import workers_of


class Sources(DeviceSources, Protocol):
    """Where facts about devices and containers come from."""

    def cgroup(self, pod: Pod, container: Container) -> ContainerCgroup | None:
        """The cgroup of a container that runs."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """What is the same for all pods of the node at one moment.

    Attributes:
        cpus: the node's CPUs.
        boot_id: of this boot; a plan of another one is no memory.
        assignments: what the kubelet assigned, None while it cannot be asked.
        resources: which extended resources are devices.
    """

    cpus: NodeCpus
    boot_id: str
    assignments: Assignments | None
    resources: DeviceResources


@dataclass(frozen=True, slots=True)
class Ground:
    """What a container's request was made from: its devices and its CPUs."""

    found: FoundDevices
    grant: CpuGrant


@dataclass(frozen=True, slots=True)
class PodRequests:
    """What one pod asks to be planned.

    Attributes:
        pod: as it was when this was made.
        requests: one per planned container.
        published: the plan that stands on the pod, whatever it is valid for; None without a readable one.
        awaits_devices: the kubelet has not shown all devices yet: ask it again soon.
        may_improve: a device could not be placed, and asking later may help.
        is_to_be_written: what is planned for it is published; else it only holds what it has.
        grounds: by container, what its request was made from; nothing of containers that ended, or of held pins.
        trouble: why the pod cannot be understood; empty where it can.
    """

    pod: Pod
    requests: tuple[DeploymentRequest, ...]
    published: PodPlan | None
    awaits_devices: bool
    may_improve: bool
    is_to_be_written: bool = True
    grounds: Mapping[str, Ground] = field(default_factory=dict)
    trouble: str = ""


def requests_of(pod: Pod, sources: Sources, node: NodeState) -> PodRequests:
    """What the pod asks to be planned, with everything that is known about it now."""
    if pod.is_deleting:
        return held_by(pod, node.boot_id)
    published = _published(pod)
    is_memory = _is_memory(published, pod, node.boot_id)
    planned = planned_containers(pod, node.resources)
    devices = PodDevices(
        pod, planned.containers, assignments=node.assignments, resources=node.resources, sources=sources
    )
    memory = published if is_memory else None
    plans = {} if memory is None else dict(memory.containers)
    finds = {
        container.name: devices.find(container, plans.get(container.name))
        for container in planned.containers
        if not container.has_ended
    }
    grounds: dict[str, Ground] = {}
    chosen = with_devices(planned, finds, None if memory is None else plans, node.resources)
    for container in chosen:
        if not container.has_ended:
            cgroup = sources.cgroup(pod, container) if container.is_running else None
            known = CpuSources(devices.assignment, cgroup, plans.get(container.name))
            grant = cpu_grant(pod, container, node=node.cpus, sources=known)
            grounds[container.name] = Ground(finds[container.name], grant)
    requests = tuple(
        _request(pod, container, grounds[container.name], plans.get(container.name), planned.refusal)
        if container.name in grounds
        else _ended(pod, container)
        for container in chosen
    )
    return PodRequests(
        pod=pod,
        requests=requests,
        published=published,
        awaits_devices=any(map(_awaits_devices, requests)),
        may_improve=any(device.may_change for ground in grounds.values() for device in ground.found.unplaced),
        grounds=grounds,
    )


def _request(
    pod: Pod, container: Container, ground: Ground, previous: ContainerPlan | None, choice: Refusal | None
) -> DeploymentRequest:
    """What a container that has not ended asks, and what speaks against it."""
    found, grant, setting = ground.found, ground.grant, setting_of(pod.annotations)
    workers, refusal = _judge(pod, found, choice)
    if refusal is None and grant.is_withheld:
        refusal = _withheld_refusal(setting, grant)
    return DeploymentRequest(
        pod=_reference(pod),
        container=container.name,
        position=pod.containers.index(container),
        setting=setting,
        workers=workers,
        devices=tuple(device.device_id for device in found.devices if device.device_id is not None),
        mask=grant.mask,
        quota=grant.quota,
        refusal=refusal,
        previous=previous,
        withheld=grant.withheld,
    )


def _awaits_devices(request: DeploymentRequest) -> bool:
    return request.refusal is not None and request.refusal.reason == reasons.WAITING_FOR_DEVICES


def decided_plan(
    asked: PodRequests, plans: Mapping[Key, ContainerPlan], *, boot_id: str, node_name: str
) -> PodPlan | None:
    """The plan that the pod is to show: the published one itself where nothing changed, or where it gets no other."""
    if not asked.is_to_be_written:
        return asked.published
    plan = PodPlan(
        generation=1,
        pod_uid=asked.pod.uid,
        boot_id=boot_id,
        node=node_name,
        containers=tuple((request.container, plans[request.key]) for request in asked.requests),
    )
    return next_plan(asked.published, plan)


def _withheld_refusal(setting: str, grant: CpuGrant) -> Refusal:
    """Why nothing is pinned where every CPU of the container is kept from plans."""
    withheld = ", ".join(map(str, grant.withheld))
    why = (
        f"no plan may use any CPU of the container: {withheld}; give it other CPUs (exclusive ones, say), or take CPUs "
        "out of agent.reservedCpus"
    )
    if setting == AUTO:
        return Refusal(reasons.NOTHING_TO_PLACE, f"nothing is pinned: {why}")
    return Refusal(reasons.OUTSIDE_MASK, f"step_thread_core {setting}: {why}")


def _ended(pod: Pod, container: Container) -> DeploymentRequest:
    """What is left of a container that never runs again while its pod goes on: it holds nothing."""
    return DeploymentRequest(
        pod=_reference(pod),
        container=container.name,
        position=pod.containers.index(container),
        setting=setting_of(pod.annotations),
        workers=(),
        devices=(),
        mask=NO_CPUS,
        quota=None,
        refusal=Refusal(reasons.NOTHING_TO_PLACE, "nothing is pinned: the container has ended"),
    )


def _is_memory(published: PodPlan | None, pod: Pod, boot_id: str) -> bool:
    """Whether the plan on the pod was made for it, and since the node was booted."""
    return published is not None and (published.pod_uid, published.boot_id) == (pod.uid, boot_id)


def _reference(pod: Pod) -> PodRef:
    return PodRef(pod.namespace, pod.name, pod.uid, pod.created)


def held_by(pod: Pod, boot_id: str, trouble: str = "") -> PodRequests:
    """What a pod that gets no new plan holds as long as its processes may run there: its pins.

    Args:
        trouble: why it gets none; empty for one that leaves.
    """
    published = _published(pod)
    positions = {container.name: position for position, container in enumerate(pod.containers)}
    known = published.containers if published is not None and _is_memory(published, pod, boot_id) else ()
    held = [(name, plan) for name, plan in known if plan.pinned]
    return PodRequests(
        pod=pod,
        requests=tuple(
            DeploymentRequest(
                pod=_reference(pod),
                container=name,
                position=positions[name],
                setting=plan.setting,
                workers=tuple(WorkerDevice(worker.address, worker.uuid) for worker in plan.workers),
                devices=plan.devices,
                mask=plan.mask,
                quota=plan.quota,
                previous=plan,
            )
            for name, plan in held
            if name in positions
        ),
        published=published,
        awaits_devices=False,
        may_improve=False,
        is_to_be_written=False,
        trouble=trouble,
    )


def _published(pod: Pod) -> PodPlan | None:
    try:
        return plan_in(pod.annotations)
    except CpuPlanError:
        return None


def _judge(pod: Pod, found: FoundDevices, choice: Refusal | None) -> tuple[tuple[WorkerDevice, ...], Refusal | None]:
    """The workers and what speaks against planning them.

    1. The named container must exist.
    2. The devices must be known.
    3. `cpuplan.dev/workers` must fit them.
    4. For `auto`, which places workers beside their devices, each worker's device must have an address, and there
       must be a worker.
    """
    if choice is not None or found.waiting is not None:
        return (), choice or found.waiting
    try:
        workers = workers_of(pod.annotations.get(WORKERS), found.devices)
    except CpuPlanError as error:
        return (), Refusal(error.reason, str(error))
    if setting_of(pod.annotations) != AUTO:
        return workers, None
    if any(worker.device_id is not None and worker.address is None for worker in workers):
        return workers, Refusal(reasons.DEVICE_UNKNOWN, "; ".join(device.why for device in found.unplaced))
    return workers, None if workers else _no_workers(found)


def _no_workers(found: FoundDevices) -> Refusal:
    if found.undecided:
        whys = "; ".join(device.why for device in found.undecided)
        return Refusal(
            reasons.DEVICE_UNKNOWN,
            f"{whys}: whether that is a GPU is not known, and the slices are read again about every minute; if its "
            "driver has nothing else, name it in deviceDrivers",
        )
    return Refusal(
        reasons.NO_DEVICE,
        f"the container has no GPU to place workers beside; ask for one, name the container that has it with "
        f'{CONTAINER}, or name workers without a GPU with {WORKERS} ("-" is one, "-,-" are two)',
    )
