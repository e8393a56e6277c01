"""`cpuplan audit`: GPU containers of a node that nobody has asked a plan for, and what is wrong with their CPUs.

kubectl exec -n cpuplan ds/cpuplan-agent -- cpuplan audit
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from ..inprocess.environment import THREAD_VARIABLES
from ..kube.errors import KubeError
from ..model.cpulist import format_cpu_list
from ..planning.audit import Audited
from ..planning.budget import counted
from .errors import WRONG_USAGE, CliError
from .output import Block, Facts, print_blocks
from .roots import add_root_arguments, chosen_root

NODE_NAME = "NODE_NAME"
"""The node's name in the agent's pod, where this command is meant to run."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `cpuplan audit`."""
    parser.add_argument(
        "--node-name", default=os.environ.get(NODE_NAME), metavar="NAME", help=f"the node; default: {NODE_NAME}"
    )
    parser.add_argument(
        "--podresources-socket",
        type=Path,
        default=Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
        metavar="FILE",
        help="the kubelet's PodResources socket",
    )
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="default: the pod's service account")
    parser.add_argument("--all", action="store_true", help="containers of pods that ask for a plan too")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    add_root_arguments(parser)


def run(namespace: argparse.Namespace) -> int:
    """Prints what was found; returns 0, also where something was."""
    if not namespace.node_name:
        raise CliError(f"which node? give --node-name, or set {NODE_NAME}", WRONG_USAGE)
    # By name: the command and the agent are edges that do not know each other.
    audit_node: Callable[..., tuple[Audited, ...]] = import_module("cpuplan.agent.auditing").audit_node
    try:
        audited = audit_node(
            namespace.node_name,
            chosen_root(namespace),
            namespace.podresources_socket,
            namespace.kubeconfig,
            variables=[variable.name for variable in THREAD_VARIABLES],
            with_planned=namespace.all,
        )
    except KubeError as error:
        raise CliError(str(error)) from error
    if namespace.output == "json":
        print(json.dumps([_document(found) for found in audited], indent=2))
    else:
        print_blocks(_blocks(namespace.node_name, audited))
    return 0


def _blocks(node_name: str, audited: tuple[Audited, ...]) -> list[Block]:
    wrong = [found for found in audited if found.findings]
    facts = (
        ("node", node_name),
        ("containers with devices", str(len(audited))),
        ("with findings", str(len(wrong))),
    )
    blocks: list[Block] = [Facts("", facts)]
    for found in audited:
        about = (
            ("mask", f"{format_cpu_list(found.mask) or 'unknown'} ({len(found.mask)} CPUs)"),
            ("quota", "none" if found.quota is None else counted(found.quota, "CPU")),
            ("devices", ", ".join(address or "unknown" for address in found.addresses) or "none"),
            *((finding.test, finding.sentence) for finding in found.findings),
        )
        blocks.append(Facts(found.name, about))
    return blocks


def _document(found: Audited) -> dict[str, Any]:
    """One container as the JSON object that `-o json` prints."""
    return {
        "name": found.name,
        "mask": format_cpu_list(found.mask),
        "quota": found.quota,
        "usable": found.usable,
        "devices": list(found.addresses),
        "findings": [{"test": finding.test, "sentence": finding.sentence} for finding in found.findings],
    }
