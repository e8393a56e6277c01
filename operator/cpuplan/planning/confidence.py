"""How far a host's topology can be trusted, from the contradictions it shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..model.cpulist import format_cpu_list
from ..model.topology import HostGpu, HostTopology

_MANY_GPUS = 4
"""GPUs from which on one list for all of them is suspicious: two or three do share a socket on real boards."""


class Level(StrEnum):
    """`consistent`: nothing contradicts itself; `suspicious`: something does; `unknown`: it is not told."""

    CONSISTENT = "consistent"
    SUSPICIOUS = "suspicious"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One test that failed: its stable name and the sentence with the values it saw."""

    test: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Confidence:
    """The level, and every finding that lowered it."""

    level: Level
    findings: tuple[Finding, ...]


def judge_topology(topology: HostTopology, gpus: Sequence[HostGpu] | None = None) -> Confidence:
    """How far the topology can be trusted for a deployment on GPUs of the kind `gpus`.

    1. Nothing says where any of the GPUs is: unknown.
    2. Any contradiction: suspicious.
    3. Else consistent (a host without GPUs too: then nothing depends on it).

    Args:
        topology: the host's.
        gpus: all GPUs of the deployment's kind; None: every function that may be a GPU, a board's own
            VGA included.
    """
    if gpus is None:
        gpus = [HostGpu(f.address, f.node, f.local) for f in topology.functions]
    untold = [gpu for gpu in gpus if not _has_known_place(gpu)]
    findings = (
        *_gpus_without_a_node(gpus),
        *_gpus_near_no_cpu(gpus),
        *_all_gpus_on_one_of_many_nodes(gpus, topology),
        *_gpus_near_another_nodes_cpus(gpus, topology),
        *_cores_across_nodes(topology),
        *_asymmetric_cores(topology),
        *_cpus_of_two_nodes(topology),
        *_cpus_of_no_node(topology),
    )
    if gpus and len(untold) == len(gpus):
        return Confidence(Level.UNKNOWN, findings)
    return Confidence(Level.SUSPICIOUS if findings else Level.CONSISTENT, findings)


def _has_known_node(gpu: HostGpu) -> bool:
    return gpu.node not in (None, "-1")


def _has_known_place(gpu: HostGpu) -> bool:
    return bool(gpu.local) and _has_known_node(gpu)


def _gpus_without_a_node(gpus: Sequence[HostGpu]) -> list[Finding]:
    unknown = [gpu.address for gpu in gpus if not _has_known_node(gpu)]
    if not unknown:
        return []
    names = ", ".join(unknown)
    return [Finding("numa-node-unknown", f"the firmware names no NUMA node for {names} (numa_node is -1 or missing)")]


def _gpus_near_no_cpu(gpus: Sequence[HostGpu]) -> list[Finding]:
    away = [f"{gpu.address} (node {gpu.node})" for gpu in gpus if _has_known_node(gpu) and not gpu.local]
    return [Finding("node-without-cpus", f"no CPU is local to {', '.join(away)}")] if away else []


def _all_gpus_on_one_of_many_nodes(gpus: Sequence[HostGpu], topology: HostTopology) -> list[Finding]:
    nodes_with_cpus = [node for node in topology.nodes if node.cpus]
    places = {gpu.local for gpu in gpus if gpu.local}
    if len(gpus) < _MANY_GPUS or len(nodes_with_cpus) < 2 or len(places) != 1:
        return []
    cpus = format_cpu_list(next(iter(places)))
    return [
        Finding(
            "one-list-for-all",
            f"all {len(gpus)} GPUs name the same local CPUs ({cpus}) on a host with {len(nodes_with_cpus)} NUMA nodes",
        )
    ]


def _gpus_near_another_nodes_cpus(gpus: Sequence[HostGpu], topology: HostTopology) -> list[Finding]:
    cpus_of = {str(node.node_id): node.cpus for node in topology.nodes}
    torn = [
        f"{gpu.address} (node {gpu.node} has {format_cpu_list(cpus_of[gpu.node])}, its local CPUs are "
        f"{format_cpu_list(gpu.local)})"
        for gpu in gpus
        if gpu.local and gpu.node in cpus_of and not gpu.local <= cpus_of[gpu.node]
    ]
    return (
        [Finding("local-beyond-node", f"local CPUs lie outside the GPU's NUMA node: {'; '.join(torn)}")] if torn else []
    )


def _cores_across_nodes(topology: HostTopology) -> list[Finding]:
    node_of = {cpu: node.node_id for node in topology.nodes for cpu in node.cpus}
    torn = [
        cpu for cpu, siblings in topology.siblings.items() if len({node_of[s] for s in siblings if s in node_of}) > 1
    ]
    if not torn:
        return []
    return [Finding("core-across-nodes", f"sibling threads lie on different NUMA nodes: CPUs {format_cpu_list(torn)}")]


def _asymmetric_cores(topology: HostTopology) -> list[Finding]:
    lists = topology.siblings
    torn = [cpu for cpu, siblings in lists.items() if any(s in lists and cpu not in lists[s] for s in siblings)]
    if not torn:
        return []
    return [Finding("asymmetric-siblings", f"sibling lists contradict each other: CPUs {format_cpu_list(torn)}")]


def _cpus_of_two_nodes(topology: HostTopology) -> list[Finding]:
    count = Counter(cpu for node in topology.nodes for cpu in node.cpus)
    double = [cpu for cpu, times in count.items() if times > 1]
    if not double:
        return []
    return [Finding("cpu-on-two-nodes", f"more than one NUMA node lists CPUs {format_cpu_list(double)}")]


def _cpus_of_no_node(topology: HostTopology) -> list[Finding]:
    if not topology.nodes:
        return []
    homeless = topology.online.difference(*(node.cpus for node in topology.nodes))
    return [Finding("cpu-on-no-node", f"no NUMA node lists CPUs {format_cpu_list(homeless)}")] if homeless else []
