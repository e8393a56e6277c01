"""What is wrong with a GPU container's CPUs, whether or not anybody asked for a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..model.cpulist import format_cpu_list
from ..model.plan import CpuPlan, usable_count
from ..model.request import DeploymentRequest
from ..model.topology import HostTopology
from .budget import budget_of, counted
from .confidence import Finding


@dataclass(frozen=True, slots=True)
class VisiblePools:
    """What a container's specification says of its thread pools.

    Attributes:
        thread_counts: by variable, the threads it asks for; None where the value is not in the specification.
        is_sized: the container sizes its pools itself (`cpuplan run`).
    """

    thread_counts: Mapping[str, int | None]
    is_sized: bool = False


@dataclass(frozen=True, slots=True)
class Audited:
    """One container with devices, and what was found.

    Attributes:
        name: namespace, pod and container, for people.
        mask: CPUs it may run on.
        quota: its CPU limit in CPUs, None without one.
        usable: CPUs that the quota lets run at once, at least 1.
        addresses: its devices, None where one cannot be placed.
        findings: what is wrong, empty where nothing is.
    """

    name: str
    mask: frozenset[int]
    quota: float | None
    usable: int
    addresses: tuple[str | None, ...]
    findings: tuple[Finding, ...]


def audit(request: DeploymentRequest, topology: HostTopology, pools: VisiblePools) -> Audited:
    """What is wrong with the container's CPUs.

    1. `device-unknown`: its devices cannot be seen or placed; nothing is said of their CPUs then.
    2. `remote-cpus`: none of its CPUs is local to a device of its own.
    3. `pools-over-quota`: a variable asks for more threads than the quota lets run at once.
    4. `pools-unbounded`: there is a quota below the CPUs it sees, and no variable that bounds a pool.
    5. `too-few-cpus`: the quota cannot run one step thread per device, a result and a pool thread at once.
    """
    usable = usable_count(len(request.mask), request.quota)
    addresses = tuple(worker.address for worker in request.workers)
    findings = (
        *_unknown_devices(request),
        *_remote_cpus(request, topology),
        *_large_pools(request, usable, pools),
        *_shortage(request, usable),
    )
    return Audited(str(request), request.mask, request.quota, usable, addresses, findings)


def _unknown_devices(request: DeploymentRequest) -> Iterator[Finding]:
    if request.refusal is not None:
        yield Finding("device-unknown", request.refusal.why)
    for worker in request.workers if request.refusal is None else ():
        if worker.address is None and worker.device_id is not None:
            yield Finding("device-unknown", f"{worker.device_id} cannot be placed: the node knows no such device")


def _remote_cpus(request: DeploymentRequest, topology: HostTopology) -> Iterator[Finding]:
    for address in dict.fromkeys(worker.address for worker in request.workers):
        function = None if address is None else topology.function(address)
        if function is not None and function.local and request.mask and not function.local & request.mask:
            yield Finding(
                "remote-cpus",
                f"all CPUs of the mask ({format_cpu_list(request.mask)}) are remote from GPU {address}, whose local "
                f"CPUs are {format_cpu_list(function.local)} (NUMA node {function.node})",
            )


def _large_pools(request: DeploymentRequest, usable: int, pools: VisiblePools) -> Iterator[Finding]:
    if request.quota is None:
        return
    limit = f"the quota of {counted(request.quota, 'CPU')} lets {usable} run at once"
    for variable, threads in pools.thread_counts.items():
        if threads is not None and threads > usable:
            yield Finding("pools-over-quota", f"{variable} asks for {counted(threads, 'thread')}, {limit}")
    if not pools.thread_counts and not pools.is_sized and usable < len(request.mask):
        yield Finding(
            "pools-unbounded",
            f"no variable bounds its pools, so they are sized to the {len(request.mask)} CPUs it sees; {limit}",
        )


def _shortage(request: DeploymentRequest, usable: int) -> Iterator[Finding]:
    shortage = budget_of(CpuPlan(request.mask, usable), len(request.workers)).shortage
    if shortage is not None and request.mask:
        yield Finding("too-few-cpus", shortage)
