"""Which CPUs a container may run on and what its quota is, from the first source that knows.

Mask:
1. its exclusive CPUs, as the kubelet says;
2. the cpuset of its running cgroup;
3. between two runs (a restart): the mask of the plan that stands on the pod, and what it withheld;
4. what a pod-level allocation leaves to the pod's sharing containers;
5. the node's shared pool, in which the agent itself runs.
Then: only online CPUs, less isolated and reserved ones. Where that leaves none, the online ones are the mask, since
pools run there whatever is planned, and nothing is pinned.

Quota: none with exclusive CPUs; the tightest level of the running cgroup; between two runs that of the plan on
the pod; before the first run `limits.cpu` of the container and of the pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ..host.podcgroups import ContainerCgroup
from ..kube.pods import Container, Pod
from ..model.podplan import ContainerPlan
from ..model.withheld import Withheld, WithheldFor
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

    def mask_in(self, cpus: frozenset[int]) -> frozenset[int]:
        """The CPUs that a plan is made on: those it may use, or all that are online where it may use none."""
        return self._plannable(cpus) or cpus & self.online

    def withheld_in(self, cpus: frozenset[int]) -> tuple[Withheld, ...]:
        """The CPUs that no plan may use, and why: each for one reason."""
        there = cpus & self.online
        left_out = there - self._plannable(cpus)
        found = {
            WithheldFor.OFFLINE: cpus - there,
            WithheldFor.ISOLATED: left_out - self.reserved,
            WithheldFor.RESERVED: left_out & self.reserved,
        }
        return tuple(Withheld(why, withheld) for why, withheld in found.items() if withheld)

    def _plannable(self, cpus: frozenset[int]) -> frozenset[int]:
        return plannable_cpus(cpus, online=self.online, isolated=self.isolated, reserved=self.reserved)


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
        mask: CPUs that a plan is made on.
        quota: the tightest CPU limit in CPUs, None without one.
        granted: the CPUs as the source has them, before offline, isolated and reserved ones are taken out.
        withheld: those of them that no plan may use; the mask has them only where they are all there is.
        mask_origin: the source of the mask.
        quota_origin: the source of the quota.
        cgroup: of the running container; None where it does not run or is not found.
    """

    mask: frozenset[int]
    quota: float | None
    granted: frozenset[int]
    withheld: tuple[Withheld, ...]
    mask_origin: Origin
    quota_origin: Origin
    cgroup: ContainerCgroup | None = None

    @property
    def is_withheld(self) -> bool:
        """Whether there are CPUs, and no plan may use any of them."""
        return any(withheld.cpus & self.mask for withheld in self.withheld)


@dataclass(frozen=True, slots=True)
class CpuSources:
    """Who may know of a container's CPUs, beside its pod and the node.

    Attributes:
        assignment: what the kubelet assigned to the pod, None where it is not known.
        cgroup: of the running container; None where it does not run or is not found.
        previous: the plan on the pod, where it is of this pod and boot.
    """

    assignment: PodAssignment | None
    cgroup: ContainerCgroup | None
    previous: ContainerPlan | None = None


def cpu_grant(pod: Pod, container: Container, *, node: NodeCpus, sources: CpuSources) -> CpuGrant:
    """The container's mask and quota as they are now."""
    assignment, cgroup, previous = sources.assignment, sources.cgroup, sources.previous
    own = None if assignment is None else assignment.containers.get(container.name)
    if own is not None and own.cpu_ids:
        return _grant(node, own.cpu_ids, None, (Origin.EXCLUSIVE, Origin.EXCLUSIVE), cgroup)
    pool = _pod_pool(assignment)
    cpus, origin = (pool, Origin.POD) if pool else (node.shared_pool, Origin.SHARED_POOL)
    if cgroup is not None:
        if cgroup.cpuset:
            cpus, origin = cgroup.cpuset, Origin.CGROUP
        return _grant(node, cpus, cgroup.quota, (origin, Origin.CGROUP), cgroup)
    if previous is not None and previous.mask and _has_run(container):
        cpus = previous.mask | previous.withheld_cpus
        return _grant(node, cpus, previous.quota, (Origin.PLAN, Origin.PLAN))
    limits = [limit for limit in (container.cpu_limit, pod.cpu_limit) if limit is not None]
    return _grant(node, cpus, min(limits, default=None), (origin, Origin.POD))


def _grant(
    node: NodeCpus,
    cpus: frozenset[int],
    quota: float | None,
    origins: tuple[Origin, Origin],
    cgroup: ContainerCgroup | None = None,
) -> CpuGrant:
    return CpuGrant(node.mask_in(cpus), quota, cpus, node.withheld_in(cpus), *origins, cgroup)


def _has_run(container: Container) -> bool:
    return container.container_id is not None or container.restart_count > 0


def _pod_pool(assignment: PodAssignment | None) -> frozenset[int]:
    """What a pod-level allocation leaves to the containers without exclusive CPUs; empty without one."""
    if assignment is None:
        return NO_CPUS
    exclusive = frozenset(cpu for container in assignment.containers.values() for cpu in container.cpu_ids)
    return assignment.cpu_ids - exclusive
