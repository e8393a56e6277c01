"""`cpuplan explain`: why a pod's plan is what it is, for every CPU taken and every candidate passed over."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..host.identity import read_boot_id
from ..host.root import HostRoot
from ..inprocess.published import PLAN_FOLDER
from ..model.podplan import ContainerPlan, PodPlan
from ..planning.agentanswer import PodExplained
from ..planning.budget import budget_of
from ..planning.explain import Decision, explain, holders_of
from .agents import AGENT_NAMESPACE
from .budget import budget_document
from .errors import WRONG_USAGE, CliError
from .explainblocks import Reasons, container_blocks
from .explainsource import part_of_cluster, part_of_url
from .machine import Machine, add_machine_arguments, read_machine
from .output import Block, Facts, print_blocks
from .podname import pod_name
from .podsource import AskAgent, PodSource, read_cluster, read_file, read_volume
from .reasons import reasons_document


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `cpuplan explain`."""
    parser.add_argument(
        "pod", nargs="?", metavar="POD", help="a pod of the cluster, NAME or pod/NAME; default: the pod this runs in"
    )
    parser.add_argument("-n", "--namespace", metavar="NAME", help="its namespace; default: the kubeconfig's")
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="default: KUBECONFIG, else ~/.kube/config")
    parser.add_argument("-f", "--file", metavar="FILE", help="a pod or a plan as JSON instead; - is standard input")
    parser.add_argument(
        "--agent-namespace",
        default=AGENT_NAMESPACE,
        metavar="NAME",
        help=f"of the release, whose agent is asked (default: {AGENT_NAMESPACE})",
    )
    parser.add_argument("--agent-url", metavar="URL", help="the agent's /explain, instead of through the API server")
    parser.add_argument("--plan-dir", type=Path, default=PLAN_FOLDER, metavar="DIR", help="where the plan volume is")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    add_machine_arguments(parser)


def run(namespace: argparse.Namespace) -> int:
    """Prints the explanation; returns 0."""
    source = _source(namespace)
    explained = None if source.agent is None else source.agent.explained
    is_current = explained is not None and source.plan is not None and explained.is_about(source.plan)
    machine = None if is_current or source.plan is None else _machine(namespace, source.plan)
    containers = () if source.plan is None else source.plan.containers
    reasons = {
        name: _agents_reasons(explained, name) if is_current else _own_reasons(plan, machine, source.neighbours)
        for name, plan in containers
    }
    if namespace.output == "json":
        print(json.dumps(_document(source, reasons), indent=2))
        return 0
    blocks: list[Block] = [Facts("", (*_pod_facts(source), *_agent_facts(source), *_origin_facts(source, machine)))]
    for name, plan in containers:
        blocks += container_blocks(f"Container {name}", plan, reasons[name])
    if explained is not None and not is_current:
        for each in explained.containers:
            title = f"Container {each.name}, as the agent has decided it"
            blocks += container_blocks(title, each.plan, Reasons(each.sentences, each.candidates))
    print_blocks(blocks)
    return 0


def _source(namespace: argparse.Namespace) -> PodSource:
    if namespace.pod is not None and namespace.file is not None:
        raise CliError("give a pod or a file, not both", WRONG_USAGE)
    if namespace.pod is None and namespace.agent_url is not None:
        raise CliError("--agent-url names the agent that is asked about a pod; give the pod's name too", WRONG_USAGE)
    if namespace.agent_url is not None and namespace.sysfs_root is not None:
        raise CliError(
            "give --agent-url or --sysfs-root, not both: a tree stands for the node and its agent", WRONG_USAGE
        )
    if namespace.file is not None:
        return read_file(namespace.file)
    if namespace.pod is not None:
        name = pod_name(namespace.pod, namespace.namespace)
        return read_cluster(name, namespace.namespace, namespace.kubeconfig, _way_to_the_agent(namespace))
    return read_volume(namespace.plan_dir)


def _way_to_the_agent(namespace: argparse.Namespace) -> AskAgent | None:
    """How the agent of the pod's node is asked; a tree stands for the node and its agent."""
    if namespace.sysfs_root is not None:
        return None
    if namespace.agent_url is not None:
        return lambda _, pod: part_of_url(namespace.agent_url, pod)
    return lambda client, pod: part_of_cluster(client, namespace.agent_namespace, pod)


def _machine(namespace: argparse.Namespace, plan: PodPlan) -> Machine | None:
    """The plan's node: the tree that is named, or this machine where it is that node."""
    is_named = namespace.sysfs_root is not None
    if not is_named and read_boot_id(HostRoot()) != plan.boot_id:
        return None
    return read_machine(namespace, [worker.address for _, container in plan.containers for worker in container.workers])


def _own_reasons(plan: ContainerPlan, machine: Machine | None, neighbours: Mapping[str, ContainerPlan]) -> Reasons:
    if machine is None:
        return Reasons()
    topology, override = machine.topology, machine.override
    sentences = explain(
        Decision.of_container(plan),
        topology,
        holders=holders_of(neighbours, topology),
        placed_by=machine.placed_by,
    )
    return Reasons((*(() if override is None else override.sentences), *sentences))


def _agents_reasons(explained: PodExplained | None, name: str) -> Reasons:
    found = None if explained is None else explained.container(name)
    return Reasons() if found is None else Reasons(found.sentences, found.candidates)


def _pod_facts(source: PodSource) -> list[tuple[str, str]]:
    plan = source.plan
    if plan is None:
        return [("pod", source.name), ("plan", "none on the pod")]
    return [
        ("pod", source.name),
        ("plan", f"generation {plan.generation}, {plan.status}"),
        ("node", f"{plan.node}, boot {plan.boot_id}"),
    ]


def _agent_facts(source: PodSource) -> list[tuple[str, str]]:
    """What the agent says of the pod as a whole, or why it says nothing."""
    if source.agent is None:
        return []
    explained = source.agent.explained
    if explained is None:
        return [("agent", source.agent.trouble)]
    what = f"generation {explained.generation}" if explained.generation else "no plan"
    age = f"{explained.seconds_old:g} s ago"
    return [
        ("agent", f"that of {explained.node}, {what}, {age}"),
        *(("says", " ".join(note.split())) for note in explained.notes),
    ]


def _origin_facts(source: PodSource, machine: Machine | None) -> list[tuple[str, str]]:
    """Where the reasons are from that no agent gave."""
    plan, has_agent = source.plan, source.agent is not None and source.agent.explained is not None
    if plan is None or (machine is None and has_agent):
        return []
    if machine is None:
        return [
            (
                "sources",
                f"this machine is not {plan.node}: the files behind each reason are left out; "
                "run cpuplan explain in the pod, or give the node's tree with --sysfs-root",
            )
        ]
    addresses = [worker.address for _, container in plan.containers for worker in container.workers if worker.address]
    missing = dict.fromkeys(address for address in addresses if machine.topology.function(address) is None)
    if not missing:
        return []
    return [
        (
            "warning",
            f"the tree has no device {', '.join(missing)}, which the plan is for: it seems to be another machine's "
            f"than {plan.node}'s, and then the reasons below are wrong",
        )
    ]


def _document(source: PodSource, reasons: Mapping[str, Reasons]) -> dict[str, Any]:
    """The explanation as the JSON object that `-o json` prints: the plan's own form, budgets, reasons, the agent's."""
    document: dict[str, Any] = {"generation": 0, "containers": {}}
    if source.plan is not None:
        document = json.loads(source.plan.to_json())
    for name, plan in () if source.plan is None else source.plan.containers:
        document["containers"][name] |= {
            "status": str(plan.status),
            "budget": budget_document(budget_of(plan.as_cpu_plan(), len(plan.workers))),
            "reasons": reasons_document(reasons[name].sentences),
            "candidates": [candidates.to_document() for candidates in reasons[name].candidates],
        }
    explained = None if source.agent is None else source.agent.explained
    trouble = None if source.agent is None else source.agent.trouble or None
    agent = None if explained is None else explained.to_document()
    return {"pod": source.name} | document | {"agent": agent, "agentTrouble": trouble}
