"""An administrator's word on where GPUs are, put above what the firmware says, with the difference told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..model.cpulist import format_cpu_list
from ..model.source import Source
from ..model.topology import GpuPlacement, HostGpu, HostTopology, PciFunction
from .explanation import PCI_FOLDER, Sentence, Topic, local_source, number_source


@dataclass(frozen=True, slots=True)
class Difference:
    """One GPU that the override moved, or that the host has not: the sentence, and what sysfs says of it."""

    sentence: str
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class Overridden:
    """The topology with the override applied, and where it differs from sysfs."""

    topology: HostTopology
    differences: tuple[Difference, ...]


def override_topology(topology: HostTopology, placements: tuple[GpuPlacement, ...]) -> Overridden:
    """The topology in which each placed GPU lies where its placement says.

    1. A placement without CPUs takes those of its NUMA node.
    2. GPUs that no placement names stay where sysfs says they are.
    3. A placement that differs from sysfs, and one of a GPU that the host has not, become sentences.
    """
    nodes = {node.node_id: node.cpus for node in topology.nodes}
    by_address = {placement.address: placement for placement in placements}
    functions, differences = [], []
    for function in topology.functions:
        placement = by_address.pop(function.address, None)
        if placement is None:
            functions.append(function)
            continue
        local = placement.cpus if placement.cpus is not None else nodes.get(placement.node, frozenset())
        moved = replace(function, node=str(placement.node), local=local)
        if moved != function:
            text = f"{function.address}: sysfs says {_where(function)}, the override says {_where(moved)}"
            gpu = HostGpu(function.address, function.node, function.local)
            differences.append(Difference(text, (number_source(gpu), local_source(gpu))))
        functions.append(moved)
    differences.extend(
        Difference(
            f"{address}: the override places it on NUMA node {placement.node}, this host has no such device",
            (Source(f"{PCI_FOLDER}/{address}/class", None),),
        )
        for address, placement in sorted(by_address.items())
    )
    return Overridden(replace(topology, functions=tuple(functions)), tuple(differences))


def sentences_of(differences: Iterable[Difference]) -> tuple[Sentence, ...]:
    """The differences as reasons."""
    start = "the topology override differs from sysfs"
    return tuple(Sentence(Topic.TOPOLOGY, f"{start}: {d.sentence}", d.sources) for d in differences)


def _where(function: PciFunction) -> str:
    node = "no NUMA node" if function.node in (None, "-1") else f"NUMA node {function.node}"
    return f"{node} with CPUs {format_cpu_list(function.local)}" if function.local else f"{node} without local CPUs"
