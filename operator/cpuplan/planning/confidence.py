"""How far a host's topology can be trusted, from the contradictions it shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..model.cpulist import format_cpu_list
from ..model.topology import HostTopology, PciFunction


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


def judge_topology(topology: HostTopology) -> Confidence:
    """How far the topology can be trusted.

    1. Nothing says where any GPU is: unknown.
    2. Any contradiction: suspicious.
    3. Else consistent (a host without GPUs too: then nothing depends on it).
    """
    gpus = topology.functions
    untold = [gpu for gpu in gpus if not gpu.local or gpu.node in (None, "-1")]
    findings = (
        *_gpus_without_a_node(untold),
        *_gpus_near_no_cpu(topology),
        *_all_gpus_on_one_of_many_nodes(topology),
        *_cores_across_nodes(topology),
        *_asymmetric_cores(topology),
        *_cpus_of_two_nodes(topology),
    )
    if gpus and len(untold) == len(gpus):
        return Confidence(Level.UNKNOWN, findings)
    return Confidence(Level.SUSPICIOUS if findings else Level.CONSISTENT, findings)


def _gpus_without_a_node(untold: Sequence[PciFunction]) -> list[Finding]:
    unknown = [gpu for gpu in untold if gpu.node in (None, "-1")]
    if not unknown:
        return []
    names = ", ".join(gpu.address for gpu in unknown)
    return [Finding("numa-node-unknown", f"the firmware names no NUMA node for {names} (numa_node is -1 or missing)")]


def _gpus_near_no_cpu(topology: HostTopology) -> list[Finding]:
    away = [gpu for gpu in topology.functions if gpu.node not in (None, "-1") and not gpu.local]
    if not away:
        return []
    names = ", ".join(f"{gpu.address} (node {gpu.node})" for gpu in away)
    return [Finding("node-without-cpus", f"no CPU is local to {names}")]


def _all_gpus_on_one_of_many_nodes(topology: HostTopology) -> list[Finding]:
    gpus = topology.functions
    nodes_with_cpus = [node for node in topology.nodes if node.cpus]
    places = {gpu.local for gpu in gpus if gpu.local}
    if len(gpus) < 4 or len(nodes_with_cpus) < 2 or len(places) != 1:
        return []
    cpus = format_cpu_list(next(iter(places)))
    return [
        Finding(
            "one-list-for-all",
            f"all {len(gpus)} GPUs name the same local CPUs ({cpus}) on a host with {len(nodes_with_cpus)} NUMA nodes",
        )
    ]


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
