"""Which CPUs a container may run on and what its quota is, from the first source that knows.

Mask:
1. its exclusive CPUs, as the kubelet says;
2. the cpuset of its running cgroup;
3. between two runs (a restart): the mask of the plan that stands on the pod;
4. what a pod-level allocation leaves to the pod's sharing containers;
5. the node's shared pool, in which the agent itself runs.
Then: only online CPUs, less isolated and reserved ones.

Quota: none with exclusive CPUs; the tightest level of the running cgroup; between two runs that of the plan on
the pod; before the first run `limits.cpu` of the container and of the pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ..host.podcgroups import ContainerCgroup
from ..kube.pods import Container, Pod
from ..model.podplan import ContainerPlan
from ..planning.plannable import plannable_cpus
from .podresources import PodAssignment

NO_CPUS: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class NodeCpus:
    """The node's CPUs at one moment.

    Attributes:
        shared_pool: CPUs of the agent itself, hence of every container without exclusive ones.
        isolated: CPUs that the kernel command line keeps from the scheduler.
        reserved: CPUs that the administrator keeps from plans.
    """

    online: frozenset[int]
    shared_pool: frozenset[int]
    isolated: frozenset[int] = NO_CPUS
    reserved: frozenset[int] = NO_CPUS

    def plannable(self, cpus: frozenset[int]) -> frozenset[int]:
        """The CPUs that a plan may use: online, neither isolated nor reserved.

        Where that leaves nothing, the online ones.
        """
        rule = plannable_cpus(cpus, online=self.online, isolated=self.isolated, reserved=self.reserved)
        return rule or cpus & self.online


class Origin(Enum):
    """Which of the sources above knew."""

    EXCLUSIVE = "exclusive"
    CGROUP = "cgroup"
    PLAN = "plan"
    POD = "pod"
    """The pod-level allocation for a mask, `limits.cpu` for a quota."""
    SHARED_POOL = "shared pool"


@dataclass(frozen=True, slots=True)
class CpuGrant:
    """A container's mask and quota, and where they come from.

    Attributes:
        mask: CPUs that a plan may use.
        quota: the tightest CPU limit in CPUs, None without one.
        granted: the CPUs as the source has them, before offline, isolated and reserved ones are taken out.
        mask_origin: the source of the mask.
        quota_origin: the source of the quota.
        cgroup: of the running container; None where it does not run or is not found.
    """

    mask: frozenset[int]
    quota: float | None
    granted: frozenset[int]
    mask_origin: Origin
    quota_origin: Origin
    cgroup: ContainerCgroup | None = None


def cpu_grant(
    pod: Pod,
    container: Container,
    *,
    node: NodeCpus,
    assignment: PodAssignment | None,
    cgroup: ContainerCgroup | None,
    previous: ContainerPlan | None,
) -> CpuGrant:
    """The container's mask and quota as they are now.

    Args:
        assignment: what the kubelet assigned to the pod, None where it is not known.
        cgroup: of the running container; None where it does not run or is not found.
        previous: the plan on the pod, where it is of this pod and boot.
    """
    own = None if assignment is None else assignment.containers.get(container.name)
    if own is not None and own.cpu_ids:
        mask = node.plannable(own.cpu_ids)
        return CpuGrant(mask, None, own.cpu_ids, Origin.EXCLUSIVE, Origin.EXCLUSIVE, cgroup)
    pool = _pod_pool(assignment)
    cpus, origin = (pool, Origin.POD) if pool else (node.shared_pool, Origin.SHARED_POOL)
    if cgroup is not None:
        if cgroup.cpuset:
            cpus, origin = cgroup.cpuset, Origin.CGROUP
        return CpuGrant(node.plannable(cpus), cgroup.quota, cpus, origin, Origin.CGROUP, cgroup)
    if previous is not None and previous.mask and _has_run(container):
        mask = previous.mask & node.online
        return CpuGrant(mask, previous.quota, previous.mask, Origin.PLAN, Origin.PLAN)
    limits = [limit for limit in (container.cpu_limit, pod.cpu_limit) if limit is not None]
    return CpuGrant(node.plannable(cpus), min(limits, default=None), cpus, origin, Origin.POD)


def _has_run(container: Container) -> bool:
    return container.container_id is not None or container.restart_count > 0


def _pod_pool(assignment: PodAssignment | None) -> frozenset[int]:
    """What a pod-level allocation leaves to the containers without exclusive CPUs; empty without one."""
    if assignment is None:
        return NO_CPUS
    exclusive = frozenset(cpu for container in assignment.containers.values() for cpu in container.cpu_ids)
    return assignment.cpu_ids - exclusive
