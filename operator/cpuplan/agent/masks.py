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

from ..host.podcgroups import ContainerCgroup
from ..kube.pods import Container, Pod
from ..model.podplan import ContainerPlan
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

        Where that leaves nothing (exclusive CPUs that are isolated on purpose) the online ones.
        """
        online = cpus & self.online
        return online - self.isolated - self.reserved or online


@dataclass(frozen=True, slots=True)
class CpuGrant:
    """A container's mask and quota."""

    mask: frozenset[int]
    quota: float | None


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
        return CpuGrant(node.plannable(own.cpu_ids), None)
    if cgroup is not None:
        cpus = cgroup.cpuset or _pod_pool(assignment) or node.shared_pool
        return CpuGrant(node.plannable(cpus), cgroup.quota)
    if previous is not None and previous.mask and _has_run(container):
        return CpuGrant(previous.mask & node.online, previous.quota)
    limits = [limit for limit in (container.cpu_limit, pod.cpu_limit) if limit is not None]
    cpus = _pod_pool(assignment) or node.shared_pool
    return CpuGrant(node.plannable(cpus), min(limits, default=None))


def _has_run(container: Container) -> bool:
    return container.container_id is not None or container.restart_count > 0


def _pod_pool(assignment: PodAssignment | None) -> frozenset[int]:
    """What a pod-level allocation leaves to the containers without exclusive CPUs; empty without one."""
    if assignment is None:
        return NO_CPUS
    exclusive = frozenset(cpu for container in assignment.containers.values() for cpu in container.cpu_ids)
    return assignment.cpu_ids - exclusive
