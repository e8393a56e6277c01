"""How far a host's topology can be trusted, from the contradictions it shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, islice

from ..model.cpulist import format_cpu_list
from ..model.source import Source
from ..model.topology import HostGpu, HostTopology
from .explanation import (
    CPU_FOLDER,
    MOST_SOURCES,
    NOTHING,
    local_source,
    node_source,
    number_source,
    siblings_source,
)

_MANY_GPUS = 4
"""GPUs from which on one list for all of them is suspicious: two or three do share a socket on real boards."""


class Level(StrEnum):
    """`consistent`: nothing contradicts itself; `suspicious`: something does; `unknown`: it is not told."""

    CONSISTENT = "consistent"
    SUSPICIOUS = "suspicious"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One test that failed: its stable name, the sentence with the values it saw, and the first files they are from."""

    test: str
    sentence: str
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True)
class Confidence:
    """The level, and every finding that lowered it."""

    level: Level
    findings: tuple[Finding, ...]


def judge_topology(
    topology: HostTopology, gpus: Sequence[HostGpu] | None = None, *, placed_by: Mapping[str, str] = NOTHING
) -> Confidence:
    """How far the topology can be trusted for a deployment on GPUs of the kind `gpus`.

    1. Nothing says where any of the GPUs is: unknown.
    2. Any contradiction: suspicious.
    3. Else consistent (a host without GPUs too: then nothing depends on it).

    Args:
        topology: the host's.
        gpus: all GPUs of the deployment's kind; None: every function that may be a GPU, a board's own
            VGA included.
        placed_by: by GPU address, the file of the administrator's override that placed it.
    """
    if gpus is None:
        gpus = [HostGpu(f.address, f.node, f.local) for f in topology.functions]
    untold = [gpu for gpu in gpus if not _has_known_place(gpu)]
    findings = (
        *_gpus_without_a_node(gpus, placed_by),
        *_gpus_near_no_cpu(gpus, placed_by),
        *_all_gpus_on_one_of_many_nodes(gpus, topology, placed_by),
        *_gpus_near_another_nodes_cpus(gpus, topology, placed_by),
        *_gpus_on_nodes_that_are_not_there(gpus, topology, placed_by),
        *_one_list_on_several_nodes(gpus, placed_by),
        *_lists_that_cross_on_a_node(gpus, placed_by),
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


def _gpus_without_a_node(gpus: Sequence[HostGpu], placed_by: Mapping[str, str]) -> list[Finding]:
    unknown = [gpu for gpu in gpus if not _has_known_node(gpu)]
    if not unknown:
        return []
    names = ", ".join(gpu.address for gpu in unknown)
    text = f"the firmware names no NUMA node for {names} (numa_node is -1 or missing)"
    return [Finding("numa-node-unknown", text, _first(number_source(gpu, placed_by) for gpu in unknown))]


def _gpus_near_no_cpu(gpus: Sequence[HostGpu], placed_by: Mapping[str, str]) -> list[Finding]:
    away = [gpu for gpu in gpus if _has_known_node(gpu) and not gpu.local]
    if not away:
        return []
    names = ", ".join(f"{gpu.address} (node {gpu.node})" for gpu in away)
    sources = _first(local_source(gpu, placed_by) for gpu in away)
    return [Finding("node-without-cpus", f"no CPU is local to {names}", sources)]


def _all_gpus_on_one_of_many_nodes(
    gpus: Sequence[HostGpu], topology: HostTopology, placed_by: Mapping[str, str]
) -> list[Finding]:
    nodes_with_cpus = [node for node in topology.nodes if node.cpus]
    places = {gpu.local for gpu in gpus if gpu.local}
    if len(gpus) < _MANY_GPUS or len(nodes_with_cpus) < 2 or len(places) != 1:
        return []
    cpus = format_cpu_list(next(iter(places)))
    text = f"all {len(gpus)} GPUs name the same local CPUs ({cpus}) on a host with {len(nodes_with_cpus)} NUMA nodes"
    return [Finding("one-list-for-all", text, _first(local_source(gpu, placed_by) for gpu in gpus))]


def _gpus_near_another_nodes_cpus(
    gpus: Sequence[HostGpu], topology: HostTopology, placed_by: Mapping[str, str]
) -> list[Finding]:
    nodes = {str(node.node_id): node for node in topology.nodes}
    torn = [gpu for gpu in gpus if gpu.local and gpu.node in nodes and not gpu.local <= nodes[gpu.node].cpus]
    if not torn:
        return []
    seen = "; ".join(
        f"{gpu.address} (node {gpu.node} has {format_cpu_list(nodes[str(gpu.node)].cpus)}, its local CPUs are "
        f"{format_cpu_list(gpu.local or ())})"
        for gpu in torn
    )
    sources = (
        source
        for gpu in torn
        for source in (
            number_source(gpu, placed_by),
            local_source(gpu, placed_by),
            node_source(nodes[str(gpu.node)]),
        )
    )
    text = f"local CPUs lie outside the GPU's NUMA node: {seen}"
    return [Finding("local-beyond-node", text, _first(sources))]


def _gpus_on_nodes_that_are_not_there(
    gpus: Sequence[HostGpu], topology: HostTopology, placed_by: Mapping[str, str]
) -> list[Finding]:
    """GPUs whose node no folder lists.

    Suspicious: the kernel takes over no number of a node that it does not have. A host without the folder at all (a
    kernel without NUMA) contradicts nothing.
    """
    known = {str(node.node_id) for node in topology.nodes}
    lost = [gpu for gpu in gpus if _has_known_node(gpu) and gpu.node not in known]
    if not known or not lost:
        return []
    names = ", ".join(f"{gpu.address} (node {gpu.node})" for gpu in lost)
    text = f"the host lists no such NUMA node as that of {names}"
    return [Finding("node-not-listed", text, _first(number_source(gpu, placed_by) for gpu in lost))]


def _one_list_on_several_nodes(gpus: Sequence[HostGpu], placed_by: Mapping[str, str]) -> list[Finding]:
    """GPUs of different nodes that name the very same local CPUs.

    Suspicious: node and list are one fact in the kernel, no CPU is on two nodes, and a plan gives each node's GPUs
    cores as if the other's were elsewhere. Nodes of memory alone have empty lists, which say nothing.
    """
    by_list: dict[frozenset[int], list[HostGpu]] = {}
    for gpu in gpus:
        if gpu.local and _has_known_node(gpu):
            by_list.setdefault(gpu.local, []).append(gpu)
    shared = [members for members in by_list.values() if len({gpu.node for gpu in members}) > 1]
    if not shared:
        return []
    seen = []
    for members in shared:
        names = ", ".join(f"{gpu.address} (node {gpu.node})" for gpu in members)
        seen.append(f"{names} name {format_cpu_list(members[0].local or ())}")
    sources = (
        source
        for members in shared
        for gpu in members
        for source in (number_source(gpu, placed_by), local_source(gpu, placed_by))
    )
    text = f"GPUs of different NUMA nodes name the same CPUs: {'; '.join(seen)}"
    return [Finding("one-list-on-several-nodes", text, _first(sources))]


def _lists_that_cross_on_a_node(gpus: Sequence[HostGpu], placed_by: Mapping[str, str]) -> list[Finding]:
    """GPUs of one node whose local CPUs overlap although none holds the other's.

    Suspicious: a plan takes the list of a node's first GPU for all of them. Lists that are apart, or one within
    another, only tell more than the node does: which of its caches a GPU is near (an MI250X's are), and that is sound.
    """
    crossing = [
        (first, second)
        for first, second in combinations([gpu for gpu in gpus if _has_known_place(gpu)], 2)
        if first.node == second.node and _cross(first.local or frozenset(), second.local or frozenset())
    ]
    if not crossing:
        return []
    torn = list(dict.fromkeys(gpu for pair in crossing for gpu in pair))
    seen = ", ".join(f"{gpu.address} (node {gpu.node}): {format_cpu_list(gpu.local or ())}" for gpu in torn)
    text = f"local CPUs of GPUs on one NUMA node overlap without being the same: {seen}"
    return [Finding("lists-cross-on-node", text, _first(local_source(gpu, placed_by) for gpu in torn))]


def _cross(one: frozenset[int], other: frozenset[int]) -> bool:
    return not (one.isdisjoint(other) or one <= other or other <= one)


def _cores_across_nodes(topology: HostTopology) -> list[Finding]:
    node_of = {cpu: node.node_id for node in topology.nodes for cpu in node.cpus}
    torn = [
        cpu for cpu, siblings in topology.siblings.items() if len({node_of[s] for s in siblings if s in node_of}) > 1
    ]
    if not torn:
        return []
    text = f"sibling threads lie on different NUMA nodes: CPUs {format_cpu_list(torn)}"
    return [Finding("core-across-nodes", text, _first(siblings_source(topology, cpu) for cpu in sorted(torn)))]


def _asymmetric_cores(topology: HostTopology) -> list[Finding]:
    lists = topology.siblings
    torn = [cpu for cpu, siblings in lists.items() if any(s in lists and cpu not in lists[s] for s in siblings)]
    if not torn:
        return []
    text = f"sibling lists contradict each other: CPUs {format_cpu_list(torn)}"
    return [Finding("asymmetric-siblings", text, _first(siblings_source(topology, cpu) for cpu in sorted(torn)))]


def _cpus_of_two_nodes(topology: HostTopology) -> list[Finding]:
    count = Counter(cpu for node in topology.nodes for cpu in node.cpus)
    double = {cpu for cpu, times in count.items() if times > 1}
    if not double:
        return []
    text = f"more than one NUMA node lists CPUs {format_cpu_list(double)}"
    sources = _first(node_source(node) for node in topology.nodes if node.cpus & double)
    return [Finding("cpu-on-two-nodes", text, sources)]


def _cpus_of_no_node(topology: HostTopology) -> list[Finding]:
    if not topology.nodes:
        return []
    homeless = topology.online.difference(*(node.cpus for node in topology.nodes))
    if not homeless:
        return []
    text = f"no NUMA node lists CPUs {format_cpu_list(homeless)}"
    sources = (Source(f"{CPU_FOLDER}/online", format_cpu_list(topology.online)), *map(node_source, topology.nodes))
    return [Finding("cpu-on-no-node", text, _first(sources))]


def _first(sources: Iterable[Source]) -> tuple[Source, ...]:
    return tuple(islice(sources, MOST_SOURCES))
