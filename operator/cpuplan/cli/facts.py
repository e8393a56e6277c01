"""The facts of a machine beside the files that they come from, as the text in each file has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..host.root import HostRoot, read_text
from ..host.threads import ALLOWED_CPUS_FIELD, read_allowed_text
from ..model.cpulist import parse_cpu_list
from ..model.source import Source
from ..model.topology import HostGpu, HostTopology
from ..planning.cores import cores_of
from ..planning.explanation import local_source, number_source
from .machine import Machine
from .output import Table
from .roots import Allowance

_LONGEST_TEXT = 120
"""Characters of a strange text in a table: enough to see what is wrong. The JSON has all of it."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact by its name, and the file that tells it; `is_list` where the text has to be a list of CPUs."""

    name: str
    source: Source
    is_list: bool

    @property
    def shown(self) -> str:
        """The text for people; what is not understood is quoted."""
        text = self.source.value
        if not text:
            return "missing" if text is None else "empty"
        if self.is_list:
            return text if _is_cpu_list(text) else f"malformed: {text[:_LONGEST_TEXT]!r}"
        return text if text.isprintable() and len(text) <= _LONGEST_TEXT else repr(text[:_LONGEST_TEXT])

    def to_document(self) -> dict[str, Any]:
        """The JSON object; the text of a missing file is null."""
        return {"fact": self.name} | self.source.to_document()


def machine_facts(machine: Machine) -> tuple[Fact, ...]:
    """Every fact of a file that `cpuplan show` prints, or concludes something from."""
    root, topology = machine.root, machine.topology
    return (
        _list("online CPUs", root.cpu_folder / "online"),
        _list("isolated CPUs", root.cpu_folder / "isolated"),
        *_core_facts(root, topology),
        *_node_facts(root, topology),
        *_device_facts(root, topology),
        *_override_facts(topology, machine.placed_by),
        *_allowance_facts(root, machine.allowance),
    )


def facts_table(facts: tuple[Fact, ...]) -> Table:
    """One row per fact."""
    rows = tuple((fact.name, fact.source.file, fact.shown) for fact in facts)
    return Table("Sources", ("FACT", "FILE", "VALUE"), rows)


def _list(name: str, path: Path) -> Fact:
    return Fact(name, Source(str(path), read_text(path)), is_list=True)


def _text(name: str, path: Path) -> Fact:
    return Fact(name, Source(str(path), read_text(path)), is_list=False)


def _core_facts(root: HostRoot, topology: HostTopology) -> Iterator[Fact]:
    """The list of each core's first CPU, and those of its other CPUs that say something else."""
    for core in cores_of(topology.online, topology.siblings_of):
        first, *others = (
            _list(f"core of CPU {cpu}", root.cpu_folder / f"cpu{cpu}" / "topology" / "thread_siblings_list")
            for cpu in core
        )
        yield first
        yield from (other for other in others if other.source.value != first.source.value)


def _node_facts(root: HostRoot, topology: HostTopology) -> Iterator[Fact]:
    for node in topology.nodes:
        folder = root.node_folder / f"node{node.node_id}"
        yield _list(f"CPUs of NUMA node {node.node_id}", folder / "cpulist")
        yield _text(f"distances of NUMA node {node.node_id}", folder / "distance")


def _device_facts(root: HostRoot, topology: HostTopology) -> Iterator[Fact]:
    for function in topology.functions:
        folder = root.pci_folder / function.address
        yield _text(f"vendor of {function.address}", folder / "vendor")
        yield _text(f"class of {function.address}", folder / "class")
        yield _text(f"node of {function.address}", folder / "numa_node")
        yield _list(f"CPUs near {function.address}", folder / "local_cpulist")


def _override_facts(topology: HostTopology, placed_by: Mapping[str, str]) -> Iterator[Fact]:
    """What counts of the GPUs that an administrator's override places."""
    for function in topology.functions:
        if function.address in placed_by:
            gpu = HostGpu(function.address, function.node, function.local)
            name = f"{function.address}, overridden"
            yield Fact(f"node of {name}", number_source(gpu, placed_by), is_list=False)
            yield Fact(f"CPUs near {name}", local_source(gpu, placed_by), is_list=True)


def _allowance_facts(root: HostRoot, allowance: Allowance) -> Iterator[Fact]:
    status = f"{root.proc}/self/status ({ALLOWED_CPUS_FIELD})"
    yield Fact("mask", Source(status, read_allowed_text("self", root)), is_list=True)
    if allowance.cpuset_source is not None:
        yield Fact("cpuset", allowance.cpuset_source, is_list=True)
    for source in allowance.limit_sources:
        yield Fact("quota", source, is_list=False)


def _is_cpu_list(text: str) -> bool:
    try:
        parse_cpu_list(text)
    except ValueError:
        return False
    return True
