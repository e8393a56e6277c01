"""`cpuplan explain`: why a pod's plan is what it is, for every CPU taken and every candidate passed over."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..host.identity import read_boot_id
from ..host.root import HostRoot
from ..host.sysfs import read_topology
from ..inprocess.published import PLAN_FOLDER
from ..model.cpulist import format_cpu_list
from ..model.podplan import ContainerPlan, PodPlan
from ..model.topology import HostTopology
from ..planning.budget import Budget, budget_of, counted
from ..planning.explain import Decision, Sentence, explain, holders_of
from .budget import budget_document
from .errors import WRONG_USAGE, CliError
from .output import Block, Facts, Table, print_blocks
from .podsource import PodSource, read_cluster, read_file, read_volume
from .reasons import reasons_document, reasons_table
from .roots import add_root_arguments, chosen_root


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `cpuplan explain`."""
    parser.add_argument("pod", nargs="?", metavar="POD", help="a pod of the cluster; default: the pod this runs in")
    parser.add_argument("-n", "--namespace", metavar="NAME", help="its namespace; default: the kubeconfig's")
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="default: KUBECONFIG, else ~/.kube/config")
    parser.add_argument("-f", "--file", metavar="FILE", help="a pod or a plan as JSON instead; - is standard input")
    parser.add_argument("--plan-dir", type=Path, default=PLAN_FOLDER, metavar="DIR", help="where the plan volume is")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    add_root_arguments(parser)


def run(namespace: argparse.Namespace) -> int:
    """Prints the explanation; returns 0."""
    source = _source(namespace)
    topology = _topology(namespace, source.plan)
    explained = {name: _sentences(plan, topology, source.neighbours) for name, plan in source.plan.containers}
    if namespace.output == "json":
        print(json.dumps(_document(source, explained), indent=2))
        return 0
    blocks: list[Block] = [Facts("", tuple(_pod_facts(source, topology)))]
    for name, plan in source.plan.containers:
        blocks += _container_blocks(name, plan, explained[name])
    print_blocks(blocks)
    return 0


def _source(namespace: argparse.Namespace) -> PodSource:
    if namespace.pod is not None and namespace.file is not None:
        raise CliError("give a pod or a file, not both", WRONG_USAGE)
    if namespace.file is not None:
        return read_file(namespace.file)
    if namespace.pod == "":
        raise CliError("the pod's name is empty; give one, or a file with -f", WRONG_USAGE)
    if namespace.pod is not None:
        return read_cluster(namespace.pod, namespace.namespace, namespace.kubeconfig)
    return read_volume(namespace.plan_dir)


def _topology(namespace: argparse.Namespace, plan: PodPlan) -> HostTopology | None:
    """The node's topology: of the tree that is named, or of this machine where it is the plan's node."""
    is_named = namespace.sysfs_root is not None
    if not is_named and read_boot_id(HostRoot()) != plan.boot_id:
        return None
    addresses = [worker.address for _, container in plan.containers for worker in container.workers]
    return read_topology(chosen_root(namespace), addresses)


def _sentences(
    plan: ContainerPlan, topology: HostTopology | None, neighbours: Mapping[str, ContainerPlan]
) -> tuple[Sentence, ...]:
    if topology is None:
        return ()
    return explain(Decision.of_container(plan), topology, holders=holders_of(neighbours, topology))


def _pod_facts(source: PodSource, topology: HostTopology | None) -> list[tuple[str, str]]:
    plan = source.plan
    facts = [
        ("pod", source.name),
        ("plan", f"generation {plan.generation}, {plan.status}"),
        ("node", f"{plan.node}, boot {plan.boot_id}"),
    ]
    if topology is None:
        facts.append(
            (
                "sources",
                f"this machine is not {plan.node}: the files behind each reason are left out; "
                "run cpuplan explain in the pod, or give the node's tree with --sysfs-root",
            )
        )
        return facts
    addresses = [worker.address for _, container in plan.containers for worker in container.workers if worker.address]
    missing = dict.fromkeys(address for address in addresses if topology.function(address) is None)
    if missing:
        facts.append(
            (
                "warning",
                f"the tree has no device {', '.join(missing)}, which the plan is for: it seems to be another machine's "
                f"than {plan.node}'s, and then the reasons below are wrong",
            )
        )
    return facts


def _container_blocks(name: str, plan: ContainerPlan, sentences: tuple[Sentence, ...]) -> list[Block]:
    budget, pools = budget_of(plan.as_cpu_plan(), len(plan.workers)), plan.pools
    facts = [
        ("setting", plan.setting),
        ("status", f"{plan.status} ({plan.reason})"),
        ("why", plan.why),
        ("mask", f"{format_cpu_list(plan.mask) or 'unknown'} ({len(plan.mask)} CPUs)"),
        ("quota", "none" if plan.quota is None else counted(plan.quota, "CPU")),
        ("usable", f"{counted(plan.usable, 'CPU')} at once"),
        ("pinned", format_cpu_list(plan.pinned) or "none"),
        ("result CPU", "none" if plan.result is None else str(plan.result)),
        ("pools float on", format_cpu_list(plan.pool_cpus) or "unknown"),
        ("confidence", plan.confidence),
    ]
    if budget.shortage is not None:
        facts.append(("shortage", budget.shortage))
    workers = tuple(
        (str(number), worker.address or "-", worker.uuid or "-", format_cpu_list(worker.cpus) or "none", worker.why)
        for number, worker in enumerate(plan.workers)
    )
    blocks: list[Block] = [Facts(f"Container {name}", tuple(facts))]
    if workers:
        blocks.append(Table("Workers", ("WORKER", "DEVICE", "ID", "CPUS", "WHY"), workers))
    demands = (
        ("pinned", counted(budget.pinned, "CPU"), "of the step threads and the result threads"),
        ("preprocess", counted(budget.preprocess, "thread"), "intra-op threads of the API server"),
        ("encode", counted(budget.encode, "thread"), f"{pools.encode_workers} outputs at once x {pools.png_threads}"),
        ("copy", counted(budget.copy, "thread"), f"{pools.encode_workers} outputs at once x {pools.copy_workers}"),
        ("remains", counted(max(0, budget.remains), "CPU"), _remains_sentence(budget)),
    )
    blocks.append(Table(f"Budget of {counted(budget.usable, 'usable CPU')}", ("FOR", "MOST", "WHAT"), demands))
    if sentences:
        blocks.append(reasons_table("Reasons", sentences))
    return blocks


def _remains_sentence(budget: Budget) -> str:
    if budget.remains >= 0:
        return "stay idle when every pool is busy"
    left = counted(max(1, budget.usable - budget.pinned), "CPU")
    return f"the pools share {left} and are seldom all busy; then their threads take turns"


def _document(source: PodSource, explained: Mapping[str, tuple[Sentence, ...]]) -> dict[str, Any]:
    """The explanation as the JSON object that `-o json` prints: the plan's own form, budgets and reasons."""
    document: dict[str, Any] = json.loads(source.plan.to_json())
    for name, plan in source.plan.containers:
        document["containers"][name] |= {
            "status": str(plan.status),
            "budget": budget_document(budget_of(plan.as_cpu_plan(), len(plan.workers))),
            "reasons": reasons_document(explained[name]),
        }
    return {"pod": source.name} | document
