"""`cpuplan audit`: who uses GPUs with CPUs far from them, or with pools beyond the quota; planned or not."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..planning.audit import Audited
from ..planning.budget import counted
from .agents import AGENT_NAMESPACE
from .auditsource import NodeAudit, read_agents, read_local, read_urls
from .errors import FAILED, WRONG_USAGE, CliError
from .output import Block, Facts, Table, print_blocks
from .roots import add_root_arguments, chosen_root


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `cpuplan audit`."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--kubeconfig", type=Path, metavar="FILE", help="default: KUBECONFIG, else ~/.kube/config")
    source.add_argument(
        "--url", action="append", dest="urls", metavar="URL", help="an agent's /audit instead of a cluster; repeatable"
    )
    source.add_argument("--local", action="store_true", help="this machine's processes with GPUs instead")
    parser.add_argument(
        "--agent-namespace",
        default=AGENT_NAMESPACE,
        metavar="NAME",
        help=f"of the release (default: {AGENT_NAMESPACE})",
    )
    parser.add_argument("--node", metavar="NAME", help="only this node")
    parser.add_argument("-n", "--namespace", metavar="NAME", help="only pods of this namespace")
    parser.add_argument("--all", action="store_true", help="also where nothing was found, and pods that have a plan")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    add_root_arguments(parser)


def run(namespace: argparse.Namespace) -> int:
    """Prints what was found; returns 0 whatever that is, 1 if an agent could not be asked."""
    everywhere = _audits(namespace)
    audits = [_of_namespace(audit, namespace.namespace) for audit in everywhere]
    if namespace.output == "json":
        print(json.dumps([_document(audit) for audit in audits], indent=2))
    else:
        blocks = _blocks(audits, with_all=namespace.all)
        if namespace.namespace is not None and not any(audit.containers for audit in audits):
            blocks.append(Facts("", (("namespace", _nothing_in(namespace.namespace, everywhere)),)))
        print_blocks(blocks)
    troubles = [audit.trouble for audit in audits if audit.trouble]
    for trouble in troubles:
        print(f"cpuplan audit: {trouble}", file=sys.stderr)
    return FAILED if troubles else 0


def _audits(namespace: argparse.Namespace) -> list[NodeAudit]:
    if namespace.sysfs_root is not None and not namespace.local:
        raise CliError("--sysfs-root names the tree that --local looks at; give --local too", WRONG_USAGE)
    if namespace.local and namespace.namespace is not None:
        raise CliError("--local looks at processes, which are in no namespace; leave out -n", WRONG_USAGE)
    if namespace.local:
        audits, hidden_count = read_local(chosen_root(namespace))
        if hidden_count:
            hidden = f"{hidden_count} of this machine's processes could not be looked into"
            print(f"cpuplan audit: {hidden}; run it as root to see them all", file=sys.stderr)
        return audits
    if namespace.urls:
        return [audit for audit in read_urls(namespace.urls) if namespace.node in (None, audit.node)]
    return read_agents(namespace.kubeconfig, namespace.agent_namespace, namespace.node)


def _of_namespace(audit: NodeAudit, name: str | None) -> NodeAudit:
    """The audit with the pods of one namespace only; of all where it is None."""
    if name is None:
        return audit
    kept = tuple(found for found in audit.containers if found.namespace == name)
    return NodeAudit(audit.node, audit.seconds_old, kept, audit.trouble)


def _nothing_in(name: str, audits: Sequence[NodeAudit]) -> str:
    """What to say of a namespace without anything to audit: no agent knows whether it exists."""
    others = sorted({found.namespace for audit in audits for found in audit.containers})
    those = f"; those that have: {', '.join(others)}" if others else ", and no other namespace has one"
    return f"no running container of namespace {name} has GPUs on these nodes{those}"


def _left_out(everyone: Sequence[tuple[str, Audited]], shown_count: int) -> str:
    """Which findings the table leaves out, and how they are shown; empty where it has them all."""
    count = sum(1 for _, found in everyone if found.findings) - shown_count
    return (
        f"{counted(count, 'container')} with findings, of pods that ask for a plan; --all shows them" if count else ""
    )


def _blocks(audits: Sequence[NodeAudit], *, with_all: bool) -> list[Block]:
    everyone = [(audit.node, found) for audit in audits for found in audit.containers]
    wrong = [found for _, found in everyone if found.findings]
    shown = [(node, found) for node, found in everyone if with_all or (found.findings and not found.is_planned)]
    left_out = "" if with_all else _left_out(everyone, len(shown))
    facts = (
        ("nodes", str(sum(1 for audit in audits if not audit.trouble))),
        ("with GPUs", str(len(everyone))),
        ("with findings", str(len(wrong))),
        ("planned", str(sum(1 for _, found in everyone if found.is_planned))),
        *([("left out", left_out)] if left_out else []),
    )
    blocks: list[Block] = [Facts("", facts)]
    if shown:
        columns = ("NODE", "NAME", "PLANNED", "GPUS", "CPUS", "LOCAL", "QUOTA", "FINDINGS")
        blocks.append(Table("Users of GPUs", columns, tuple(_row(node, found) for node, found in shown)))
    sentences = tuple((str(found), finding.test, finding.sentence) for _, found in shown for finding in found.findings)
    if sentences:
        blocks.append(Table("Findings", ("NAME", "FINDING", "WHAT IT SAW"), sentences))
    return blocks


def _row(node: str, found: Audited) -> tuple[str, ...]:
    return (
        node,
        str(found),
        "yes" if found.is_planned else "no",
        str(len(found.addresses)),
        str(len(found.mask)) if found.mask else "unknown",
        "unknown" if found.local is None else str(len(found.local)),
        "none" if found.quota is None else f"{found.quota:g}",
        ", ".join(dict.fromkeys(finding.test for finding in found.findings)) or "-",
    )


def _document(audit: NodeAudit) -> dict[str, Any]:
    """One node as the JSON object that `-o json` prints."""
    return {
        "node": audit.node,
        "secondsOld": audit.seconds_old,
        "trouble": audit.trouble or None,
        "containers": [found.to_document() for found in audit.containers],
    }
