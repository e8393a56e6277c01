"""`cpuplan plan`: the plan of one deployment on this machine or on any tree, with the reasons."""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..host.affinity import PINNABLE
from ..host.root import HostRoot
from ..model.cpulist import format_cpu_list, parse_cpu_list
from ..model.errors import CpuPlanError
from ..model.plan import CpuPlan, usable_count
from ..model.topology import HostTopology, is_pci_address, normalise_address
from ..planning.budget import budget_of, counted
from ..planning.confidence import Confidence, judge_topology
from ..planning.cores import Geometry
from ..planning.deployment import plan_deployment
from ..planning.explain import Decision, Sentence, Topic, explain
from ..planning.setting import AUTO
from .budget import budget_document
from .errors import WRONG_USAGE, CliError
from .machine import AppliedOverride, Machine, PlannableMask, add_machine_arguments, read_machine
from .output import Block, Facts, Table, print_blocks
from .reasons import reasons_document, reasons_table
from .streams import tell
from .vendors import DISPLAY_VENDORS

_NO_DEVICE = "-"
_WORKER = re.compile(r"[0-9]{1,4}|-", re.ASCII)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `cpuplan plan`."""
    parser.add_argument("--setting", default="auto", metavar="off|auto|CPU", help="step_thread_core (default: auto)")
    parser.add_argument(
        "--device",
        action="append",
        default=[],
        dest="devices",
        metavar="ADDRESS",
        help="PCI address of a device, repeatable; one worker each unless --workers says otherwise; - is no device",
    )
    parser.add_argument(
        "--workers", metavar="0,0,1,-", help="the device of each worker, by its place among --device; - is none"
    )
    parser.add_argument("--mask", type=_cpus, metavar="CPUS", help="CPUs the processes may run on, like 0-31,64-95")
    parser.add_argument("--quota", type=_quota, metavar="CPUS", help="CPU limit, like 12.5; none is no limit")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument(
        "--why", action="store_true", help="a reason for every CPU taken and every candidate passed over, with its file"
    )
    add_machine_arguments(parser)


def run(namespace: argparse.Namespace) -> int:
    """Prints the plan; returns 0, also where nothing could be pinned."""
    addresses = worker_addresses(namespace.devices, namespace.workers)
    machine = read_machine(namespace, addresses)
    topology = machine.topology
    plannable = machine.plannable(_given_mask(namespace.mask, topology) or machine.allowed)
    mask = plannable.cpus
    quota = machine.allowance.limit.quota if namespace.quota is None else namespace.quota
    quota = None if quota == math.inf else quota
    gpus = topology.gpus_like(addresses)
    try:
        plan = plan_deployment(
            namespace.setting,
            addresses,
            mask=mask,
            usable=usable_count(len(mask), quota),
            geometry=Geometry(gpus, topology.siblings_of),
            is_pinnable=PINNABLE or machine.root != HostRoot(),
        )
    except CpuPlanError as error:
        if namespace.why and namespace.output == "table":
            refused = Decision.of_error(namespace.setting, addresses, mask, quota, error)
            print_blocks([reasons_table("Reasons", _sentences(refused, machine, plannable))])
        if plannable.note is None:
            raise
        raise CpuPlanError(f"{error}; {plannable.note}", reason=error.reason) from error
    decision = Decision.of_plan(namespace.setting, addresses, plan, quota)
    made = _Made(
        plan,
        addresses,
        quota,
        plannable,
        [address for address in addresses if address is not None and topology.function(address) is None],
        _advice(addresses, namespace.setting, topology),
        judge_topology(topology, gpus, placed_by=machine.placed_by),
        machine.override,
        _sentences(decision, machine, plannable) if namespace.why else (),
    )
    if made.unknown:
        tell(f"cpuplan: warning: {_unknown_sentence(made.unknown, topology)}")
    if namespace.output == "json":
        print(json.dumps(_document(made), indent=2))
    else:
        print_blocks(_blocks(made))
    return 0


@dataclass(frozen=True, slots=True)
class _Made:
    """A plan, what it was made from, and its reasons where they were asked for."""

    plan: CpuPlan
    addresses: list[str | None]
    quota: float | None
    plannable: PlannableMask
    unknown: list[str]
    advice: str | None
    confidence: Confidence
    override: AppliedOverride | None
    sentences: tuple[Sentence, ...]


def _sentences(decision: Decision, machine: Machine, plannable: PlannableMask) -> tuple[Sentence, ...]:
    """The reasons of a decision, in the order of Topic."""
    made = explain(decision, machine.topology, placed_by=machine.placed_by)
    inputs = tuple(sentence for sentence in made if sentence.topic is Topic.INPUT)
    overridden = () if machine.override is None else machine.override.sentences
    return (*plannable.sentences, *inputs, *overridden, *made[len(inputs) :])


def worker_addresses(devices: list[str], workers: str | None) -> list[str | None]:
    """The normalised address of each worker's device, None for a worker without one.

    Raises:
        CliError: a device is no PCI address, or --workers is malformed or names a device that was not given.
    """
    for device in devices:
        if device != _NO_DEVICE and not is_pci_address(device):
            raise CliError(
                f"--device {device!r} is no PCI address: expected a form like 0000:1b:00.0 (cpuplan show lists them), "
                "or - for a worker without a device",
                WRONG_USAGE,
            )
    known = [None if device == _NO_DEVICE else normalise_address(device) for device in devices]
    if workers is None:
        return known
    addresses: list[str | None] = []
    for part in workers.split(","):
        if not _WORKER.fullmatch(part.strip()):
            raise CliError(f"--workers {workers}: {part!r} is neither a device's place (0, 1, …) nor -", WRONG_USAGE)
        if part.strip() == _NO_DEVICE:
            addresses.append(None)
        elif int(part) >= len(known):
            raise CliError(f"--workers {workers}: asks for device {part}, {len(known)} were given", WRONG_USAGE)
        else:
            addresses.append(known[int(part)])
    return addresses


def _given_mask(mask: frozenset[int] | None, topology: HostTopology) -> frozenset[int] | None:
    """The mask of the command line; the kernel lets no process run on a CPU that is not online."""
    offline = frozenset() if mask is None or not topology.online else mask - topology.online
    if mask is not None and offline:
        raise CliError(
            f"--mask {format_cpu_list(mask)}: the machine's online CPUs are {format_cpu_list(topology.online)}, and "
            f"nothing can run on {format_cpu_list(offline)}; give CPUs that are online",
            WRONG_USAGE,
        )
    return mask


def _advice(addresses: list[str | None], setting: str, topology: HostTopology) -> str | None:
    """What to give where `auto` has nothing to place; None where it has."""
    if addresses or setting != AUTO:
        return None
    gpus = [function for function in topology.functions if function.vendor not in DISPLAY_VENDORS]
    here = f"cpuplan show lists {counted(len(gpus), 'GPU')}" if gpus else "this machine shows no GPU"
    return f"give --device ADDRESS for each worker's GPU ({here}), or --device - for a worker without one"


def _unknown_sentence(unknown: Sequence[str], topology: HostTopology) -> str:
    """Which devices are not there, and which GPUs are."""
    known = [function.address for function in topology.functions if function.vendor not in DISPLAY_VENDORS]
    has = f"it has {', '.join(known)}" if known else "it shows no GPU"
    wanted = ", ".join(dict.fromkeys(unknown))
    return f"this host has no device {wanted}; {has}"


def _cpus(text: str) -> frozenset[int]:
    try:
        cpus = parse_cpu_list(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not cpus:
        raise argparse.ArgumentTypeError(f"CPU list {text!r} names no CPU")
    return cpus


def _quota(text: str) -> float:
    """The quota in CPUs; infinity for `none`, so that it differs from an option that was not given."""
    if text == "none":
        return math.inf
    try:
        quota = float(text)
    except ValueError:
        quota = math.nan
    if not 0 < quota < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of CPUs; expected a form like 12.5, or none")
    return quota


def _document(made: _Made) -> dict[str, Any]:
    """The plan as the JSON object that `-o json` prints: its own form, and what it came from."""
    plan, pools = made.plan, made.plan.pools
    document: dict[str, Any] = json.loads(plan.to_json())
    return document | {
        "addresses": made.addresses,
        "unknownDevices": made.unknown,
        "quota": made.quota,
        "isolated": format_cpu_list(made.plannable.isolated),
        "pinned": format_cpu_list(plan.pinned),
        "poolCpus": format_cpu_list(plan.mask - plan.pinned),
        "pools": {
            "left": pools.left,
            "preprocessThreads": pools.preprocess_threads,
            "pngThreads": pools.png_threads,
            "encodeWorkers": pools.encode_workers,
            "copyWorkers": pools.copy_workers,
        },
        "budget": budget_document(budget_of(plan, len(made.addresses))),
        "override": None if made.override is None else made.override.to_document(),
        "confidence": str(made.confidence.level),
        "findings": [{"test": f.test, "sentence": f.sentence} for f in made.confidence.findings],
        "reasons": reasons_document(made.sentences),
    }


def _blocks(made: _Made) -> list[Block]:
    plan, pools = made.plan, made.plan.pools
    facts = [
        ("reason", plan.reason),
        ("why", plan.why),
        ("mask", f"{format_cpu_list(plan.mask)} ({counted(len(plan.mask), 'CPU')})"),
        *([] if made.plannable.note is None else [("left out", made.plannable.note)]),
        ("quota", "none" if made.quota is None else counted(made.quota, "CPU")),
        ("usable", f"{counted(plan.usable, 'CPU')} at once"),
        ("pinned", format_cpu_list(plan.pinned) or "none"),
        ("result CPU", "none" if plan.result is None else str(plan.result)),
        ("pools float on", format_cpu_list(plan.mask - plan.pinned)),
        ("confidence", str(made.confidence.level)),
    ]
    shortage = budget_of(plan, len(made.addresses)).shortage
    if shortage is not None:
        facts.append(("shortage", shortage))
    if made.advice is not None:
        facts.append(("to do", made.advice))
    unknown = "there is no such device here, cpuplan show lists those that are; its worker is planned on the whole mask"
    facts.extend(("unknown device", f"{address}: {unknown}") for address in made.unknown)
    facts.extend(("override", line) for line in (() if made.override is None else made.override.lines))
    facts.extend((finding.test, finding.sentence) for finding in made.confidence.findings)
    blocks: list[Block] = [Facts("", tuple(facts))]
    if plan.workers:
        rows = tuple(
            (str(index), address or "-", format_cpu_list(step.cpus), step.why)
            for index, (address, step) in enumerate(zip(made.addresses, plan.workers, strict=True))
            if step is not None
        )
        blocks.append(Table("Workers", ("WORKER", "DEVICE", "CPUS", "WHY"), rows))
    sizes = (
        ("preprocess threads", str(pools.preprocess_threads)),
        ("PNG threads", str(pools.png_threads)),
        ("encode workers", str(pools.encode_workers)),
        ("copy workers", str(pools.copy_workers)),
    )
    blocks.append(Facts(f"Pools on the {counted(pools.left, 'CPU')} left", sizes))
    if made.sentences:
        blocks.append(reasons_table("Reasons", made.sentences))
    return blocks
