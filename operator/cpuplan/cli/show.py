"""`cpuplan show`: what a machine has and what of it a process may use."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from typing import Any

from ..model.cpulist import format_cpu_list
from ..model.plan import CpuPlan, StepCpus, usable_count
from ..model.topology import HostTopology, PciFunction
from ..planning.budget import counted
from ..planning.confidence import Confidence, judge_topology
from ..planning.cores import Geometry, cores_of
from ..planning.deployment import plan_deployment
from .facts import facts_table, machine_facts
from .machine import Machine, add_machine_arguments, read_machine
from .output import Block, Facts, Table, print_blocks
from .vendors import DISPLAY_VENDORS, vendor_name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `cpuplan show`."""
    add_machine_arguments(parser)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--why", action="store_true", help="the file and value that each fact comes from")


def run(namespace: argparse.Namespace) -> int:
    """Prints the machine; returns 0."""
    machine = read_machine(namespace)
    confidence = judge_topology(machine.topology, placed_by=machine.placed_by)
    alone = _alone_on_each_device(machine) if namespace.why else ()
    facts = machine_facts(machine) if namespace.why else ()
    if namespace.output == "json":
        document = machine_document(machine, confidence)
        document |= {"reasons": [one.to_document() for one in alone], "sources": [fact.to_document() for fact in facts]}
        print(json.dumps(document, indent=2))
        return 0
    blocks = _blocks(machine, confidence)
    if namespace.why:
        blocks += [_alone_table(alone), facts_table(facts)]
    print_blocks(blocks)
    return 0


@dataclass(frozen=True, slots=True)
class _Alone:
    """Where `auto` puts the one worker of a deployment on a device, were it alone on this host."""

    address: str
    plan: CpuPlan

    @property
    def step(self) -> StepCpus | None:
        """The worker's CPUs; None where nothing is pinned."""
        return next(iter(self.plan.workers), None)

    @property
    def why(self) -> str:
        """Why the worker has its core, or has none."""
        return self.plan.why if self.step is None else self.step.why

    def to_document(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "device": self.address,
            "stepCpus": None if self.step is None else format_cpu_list(self.step.cpus),
            "resultCpu": self.plan.result,
            "reason": self.plan.reason,
            "why": self.why,
        }


def machine_document(machine: Machine, confidence: Confidence) -> dict[str, Any]:
    """The machine as the JSON object that `-o json` prints; unknown is null."""
    topology, allowance = machine.topology, machine.allowance
    plannable = machine.plannable(machine.allowed).cpus
    limit = allowance.limit
    return {
        "online": format_cpu_list(topology.online),
        "isolated": format_cpu_list(topology.isolated),
        "cores": [format_cpu_list(core) for core in cores_of(topology.online, topology.siblings_of)],
        "nodes": [
            {"node": node.node_id, "cpus": format_cpu_list(node.cpus), "distances": list(node.distances)}
            for node in topology.nodes
        ],
        "devices": [
            {
                "address": gpu.address,
                "vendor": gpu.vendor,
                "class": gpu.device_class,
                "node": gpu.node,
                "localCpus": None if gpu.local is None else format_cpu_list(gpu.local),
            }
            for gpu in topology.functions
        ],
        "override": None if machine.override is None else machine.override.to_document(),
        "mask": None if allowance.mask is None else format_cpu_list(allowance.mask),
        "cpuset": None if allowance.cpuset is None else format_cpu_list(allowance.cpuset),
        "quota": limit.quota,
        "quotaSetBy": None if limit.folder is None else str(limit.folder),
        "plannable": format_cpu_list(plannable),
        "usable": usable_count(len(plannable), limit.quota),
        "confidence": {
            "level": str(confidence.level),
            "findings": [{"test": f.test, "sentence": f.sentence} for f in confidence.findings],
        },
    }


def _blocks(machine: Machine, confidence: Confidence) -> list[Block]:
    topology = machine.topology
    cores = cores_of(topology.online, topology.siblings_of)
    facts = [
        (
            "CPUs",
            f"{len(topology.online)} online ({format_cpu_list(topology.online)}) on {counted(len(cores), 'core')}",
        ),
        *([("isolated", format_cpu_list(topology.isolated))] if topology.isolated else []),
        *_allowance_facts(machine),
        ("confidence", str(confidence.level)),
    ]
    blocks: list[Block] = [Facts("", tuple(facts))]
    if topology.nodes:
        blocks.append(_node_table(topology))
    blocks.append(_device_table(topology))
    if machine.override is not None:
        rows = tuple((line,) for line in machine.override.lines)
        blocks.append(Table("Topology override", ("DIFFERENCE FROM SYSFS",), rows))
    if confidence.findings:
        findings = tuple((finding.test, finding.sentence) for finding in confidence.findings)
        blocks.append(Table("Findings", ("TEST", "WHAT IT SAW"), findings))
    return blocks


def _allowance_facts(machine: Machine) -> list[tuple[str, str]]:
    """Mask, cpuset, quota and usable CPUs as lines of text."""
    allowance, limit = machine.allowance, machine.allowance.limit
    plannable = machine.plannable(machine.allowed)
    usable = usable_count(len(plannable.cpus), limit.quota)
    quota = "none" if limit.quota is None else f"{counted(limit.quota, 'CPU')}, set by {limit.folder}"
    return [
        ("mask", "unknown" if allowance.mask is None else _counted(allowance.mask)),
        ("cpuset", "unknown" if allowance.cpuset is None else _counted(allowance.cpuset)),
        *([] if plannable.note is None else [("left out", plannable.note)]),
        ("quota", quota),
        ("usable", f"{usable} of {counted(len(plannable.cpus), 'CPU')} at once"),
    ]


def _counted(cpus: frozenset[int]) -> str:
    return f"{format_cpu_list(cpus)} ({counted(len(cpus), 'CPU')})"


def _node_table(topology: HostTopology) -> Table:
    rows = []
    for node in topology.nodes:
        cores = cores_of(node.cpus, topology.siblings_of)
        gpus = [gpu.address for gpu in topology.functions if gpu.node == str(node.node_id)]
        rows.append((str(node.node_id), format_cpu_list(node.cpus) or "none", str(len(cores)), ", ".join(gpus) or "-"))
    return Table("NUMA nodes", ("NODE", "CPUS", "CORES", "DEVICES"), tuple(rows))


def _device_table(topology: HostTopology) -> Block:
    if not topology.functions:
        return Facts("", (("devices", "no PCI function of a GPU's class"),))
    rows = tuple(_device_row(gpu) for gpu in topology.functions)
    return Table("Devices", ("ADDRESS", "VENDOR", "CLASS", "NODE", "LOCAL CPUS"), rows)


def _device_row(gpu: PciFunction) -> tuple[str, ...]:
    node = "unknown" if gpu.node in (None, "-1") else str(gpu.node)
    local = "unknown" if gpu.local is None else format_cpu_list(gpu.local) or "none"
    return (gpu.address, vendor_name(gpu.vendor), gpu.device_class, node, local)


def _alone_on_each_device(machine: Machine) -> tuple[_Alone, ...]:
    topology, mask = machine.topology, machine.plannable(machine.allowed).cpus
    alone = []
    for function in topology.functions:
        if function.vendor not in DISPLAY_VENDORS:
            geometry = Geometry(topology.gpus_like([function.address]), topology.siblings_of)
            plan = plan_deployment("auto", [function.address], mask=mask, usable=len(mask), geometry=geometry)
            alone.append(_Alone(function.address, plan))
    return tuple(alone)


def _alone_table(alone: tuple[_Alone, ...]) -> Table:
    rows = tuple(
        (
            one.address,
            "-" if one.step is None else format_cpu_list(one.step.cpus),
            "-" if one.plan.result is None else str(one.plan.result),
            one.why,
        )
        for one in alone
    )
    return Table("One worker alone on each device", ("DEVICE", "STEP CPUS", "RESULT CPU", "WHY"), rows)
