"""What a container's plan was made from, as sentences with files and values: its devices, mask and quota.

Pure: everything was read when the node was planned.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..host.root import HostRoot
from ..kube.annotations import PLAN
from ..kube.pods import Container, Pod
from ..model.cpulist import format_cpu_list
from ..model.podplan import ContainerPlan
from ..model.source import Source
from ..planning.budget import counted
from ..planning.candidates import Exclusion
from ..planning.explanation import CPU_FOLDER, Sentence, Topic
from ..planning.searches import Fate
from .containers import Ground
from .masks import CpuGrant, NodeCpus, Origin

MOST_DEVICES = 64
"""Devices named in one explanation; a node has fewer, but replicas of shared ones can be many more."""


class Grounds:
    """The grounds of one container's plan.

    Args:
        ground: devices and CPUs as they were found.
        node: the node's CPUs at that moment.
        root: where the agent finds the node's trees; files are told by the names that the node gives them.
    """

    def __init__(self, pod: Pod, container: Container, ground: Ground, node: NodeCpus, root: HostRoot) -> None:
        self._pod = pod
        self._container = container
        self._found = ground.found
        self._grant = ground.grant
        self._node = node
        self._root = root

    def sentences(self, plan: ContainerPlan) -> Iterator[Sentence]:
        """Devices, mask and quota, and how what is planned with differs from what was found."""
        yield from self._devices()
        text, source = self._mask()
        yield Sentence(Topic.INPUT, text, (source,))
        left_out = frozenset(cpu for withheld in self._grant.withheld for cpu in withheld.cpus)
        if left_out:
            text = f"of these CPUs {format_cpu_list(left_out)} are offline, isolated or reserved, and left out"
            yield Sentence(Topic.INPUT, text, tuple(self._files_that_leave_out(left_out)))
        if plan.mask != self._grant.mask:
            yield Sentence(
                Topic.INPUT,
                f"its mask would be {format_cpu_list(self._grant.mask) or 'empty'} now; the plan stays on that which "
                "it was made for until the change has lasted, and while something cannot be seen",
            )
        yield self._quota()

    def exclusions(self) -> tuple[Exclusion, ...]:
        """Why CPUs are left out of the mask; that they were not granted counts before all else."""
        text, source = self._mask()
        return (
            Exclusion(
                Fate.OUTSIDE, self._node.online - self._grant.granted, f"they are not in the mask: {text}", (source,)
            ),
            *node_exclusions(self._node),
        )

    def _devices(self) -> Iterator[Sentence]:
        for device, source in self._found.sources[:MOST_DEVICES]:
            name = self._root.kernel_name(source)
            yield Sentence(
                Topic.INPUT, f"device {device.device_id} is at {device.address}", (Source(name, device.device_id),)
            )
        for unplaced in (*self._found.unplaced, *self._found.undecided)[:MOST_DEVICES]:
            yield Sentence(Topic.INPUT, unplaced.why)

    def _mask(self) -> tuple[str, Source]:
        """Where the mask comes from, before anything is left out of it."""
        grant, name = self._grant, self._container.name
        cpus = format_cpu_list(grant.granted)
        kubelet = f"cpu_ids in the kubelet's PodResources of {self._pod.key}"
        if grant.mask_origin is Origin.EXCLUSIVE:
            return "its mask is its exclusive CPUs", Source(f"{kubelet} container {name}", cpus)
        if grant.mask_origin is Origin.POD:
            return "its mask is what the pod's own CPUs leave to its sharing containers", Source(kubelet, cpus)
        if grant.mask_origin is Origin.PLAN:
            return "its mask is that of its plan, since it is between two runs", Source(f"annotation {PLAN}", cpus)
        if grant.cgroup is not None and grant.mask_origin is Origin.CGROUP:
            file = self._root.kernel_name(grant.cgroup.cpuset_file or grant.cgroup.folder)
            return "its mask is the cpuset of its running cgroup", Source(file, cpus)
        status = self._root.kernel_name(self._root.proc / "self" / "status")
        text = f"its mask is the node's shared pool, in which the agent itself runs: {self._why_not_its_cgroup()}"
        return text, Source(f"Cpus_allowed_list of the agent in {status}", cpus)

    def _why_not_its_cgroup(self) -> str:
        if self._grant.cgroup is not None:
            return f"no cpuset from {self._root.kernel_name(self._grant.cgroup.folder)} up names CPUs"
        if self._container.is_running:
            return f"it runs, but its cgroup was not found below {self._root.kernel_name(self._root.cgroup)}"
        return "it does not run yet, and has no exclusive CPUs"

    def _files_that_leave_out(self, cpus: frozenset[int]) -> Iterator[Source]:
        node = self._node
        if cpus - node.online:
            yield Source(f"{CPU_FOLDER}/online", format_cpu_list(node.online))
        for exclusion in node_exclusions(node):
            if cpus & exclusion.cpus:
                yield from exclusion.sources

    def _quota(self) -> Sentence:
        text, sources = _quota_of(self._grant, self._pod, self._container)
        return Sentence(Topic.INPUT, text, tuple(Source(self._root.kernel_name(s.file), s.value) for s in sources))


def node_exclusions(node: NodeCpus) -> tuple[Exclusion, ...]:
    """The CPUs of the node that are left out of every mask that has others."""
    isolated = Source(f"{CPU_FOLDER}/isolated", format_cpu_list(node.isolated))
    reserved = Source("--reserved-cpus (agent.reservedCpus)", format_cpu_list(node.reserved))
    return (
        Exclusion(Fate.ISOLATED, node.isolated, "the kernel keeps them from the scheduler", (isolated,)),
        Exclusion(Fate.RESERVED, node.reserved, "the administrator keeps them from plans", (reserved,)),
    )


def _quota_of(grant: CpuGrant, pod: Pod, container: Container) -> tuple[str, tuple[Source, ...]]:
    """Where the quota comes from; paths as the agent sees them."""
    value = "" if grant.quota is None else counted(grant.quota, "CPU")
    if grant.quota_origin is Origin.EXCLUSIVE:
        return "no quota counts: its CPUs are exclusive", ()
    if grant.cgroup is not None:
        text = (
            f"its quota is {value}, the tightest limit from its cgroup up"
            if value
            else "no cgroup from its own up limits its CPUs"
        )
        return text, grant.cgroup.quota_sources
    if grant.quota_origin is Origin.PLAN:
        text = f"its quota is {value or 'none'}, that of its plan, since it is between two runs"
        return text, (Source(f"annotation {PLAN}", None if grant.quota is None else f"{grant.quota:g}"),)
    limits = {f"limits.cpu of container {container.name}": container.cpu_limit, "limits.cpu of the pod": pod.cpu_limit}
    sources = tuple(Source(name, f"{limit:g}") for name, limit in limits.items() if limit is not None)
    known = "its cgroup was not found" if container.is_running else "it does not run yet"
    if not value:
        return f"it has no quota: {known}, and its specification sets no limits.cpu", ()
    return f"its quota is {value}: {known}, and its specification says so", sources
