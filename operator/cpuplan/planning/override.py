"""An administrator's word on where GPUs are, put above what the firmware says, with the difference told."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..model.cpulist import format_cpu_list
from ..model.topology import GpuPlacement, HostTopology, PciFunction


@dataclass(frozen=True, slots=True)
class Overridden:
    """The topology with the override applied, and one sentence per GPU that it moved or does not know."""

    topology: HostTopology
    differences: tuple[str, ...]


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
            differences.append(f"{function.address}: sysfs says {_where(function)}, the override says {_where(moved)}")
        functions.append(moved)
    differences.extend(
        f"{address}: the override places it on NUMA node {placement.node}, this host has no such device"
        for address, placement in sorted(by_address.items())
    )
    return Overridden(replace(topology, functions=tuple(functions)), tuple(differences))


def _where(function: PciFunction) -> str:
    node = "no NUMA node" if function.node in (None, "-1") else f"NUMA node {function.node}"
    return f"{node} with CPUs {format_cpu_list(function.local)}" if function.local else f"{node} without local CPUs"
