"""`cpuplan verify`: is the plan applied, and which thread is where."""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from ..host.root import HostRoot
from ..host.threads import read_cgroup_peers, read_process_ids, read_thread_masks
from ..inprocess.published import NotPublished, wait_for_plan
from ..inprocess.verification import PlacedThread, Verification, verify_threads
from ..model.cpulist import format_cpu_list
from ..model.podplan import ContainerPlan
from ..model.withheld import withheld_document
from .errors import FAILED, CliError
from .inforce import add_plan_arguments, count
from .output import Block, Facts, Table, print_blocks

_NAMES_SHOWN = 6
"""Thread names in one row of the table; the JSON has them all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `cpuplan verify`."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--pid", type=count, action="append", dest="pids", metavar="PID", help="a process to look at, repeatable"
    )
    which.add_argument("--all", action="store_true", help="every process that is seen; default: this container's")
    parser.add_argument("--proc-root", type=Path, metavar="DIR", default=Path("/proc"), help="folder that is /proc")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    add_plan_arguments(parser)


def run(namespace: argparse.Namespace) -> int:
    """Prints where the threads are; returns 0 if the plan is applied or pins nothing, else 1."""
    root = HostRoot(proc=namespace.proc_root)
    found = wait_for_plan(namespace.wait_seconds, namespace.container, folder=namespace.plan_dir, root=root)
    if isinstance(found, NotPublished):
        raise CliError(f"there is no plan to compare with: {found.why}")
    processes = [(process_id, read_thread_masks(process_id, root)) for process_id in _process_ids(namespace, root)]
    gone = [str(process_id) for process_id, threads in processes if not threads]
    if namespace.pids and gone:
        raise CliError(f"no such process: {', '.join(gone)} (in {root.proc})")
    result = verify_threads(found.plan, processes)
    if namespace.output == "json":
        print(json.dumps(_document(found.plan, found.generation, result), indent=2))
    else:
        print_blocks(_blocks(found.plan, found.generation, result))
    return 0 if result.is_applied else FAILED


def _process_ids(namespace: argparse.Namespace, root: HostRoot) -> list[int]:
    """The processes to look at; this one, which only looks, is not among those that were not named."""
    if namespace.pids:
        return list(namespace.pids)
    found = read_process_ids(root) if namespace.all else read_cgroup_peers(root)
    return [process_id for process_id in found if process_id != os.getpid()]


def _verdict(plan: ContainerPlan, result: Verification) -> str:
    if not plan.pinned:
        return f"nothing to apply: {plan.why}"
    return "applied" if result.is_applied else "not applied"


def _blocks(plan: ContainerPlan, generation: int, result: Verification) -> list[Block]:
    facts = [
        ("verdict", _verdict(plan, result)),
        ("plan", f"generation {generation}, pinned {format_cpu_list(plan.pinned) or 'none'}"),
        *([("withheld", ", ".join(map(str, plan.withheld)))] if plan.withheld else []),
        *(("not applied", sentence) for sentence in (*result.missing, *result.outside)),
    ]
    rows = Counter((t.process_id, _meaning(t), format_cpu_list(t.thread.allowed)) for t in result.threads)
    table = tuple(
        (str(process_id), meaning, cpus, str(number), _names(result, process_id, meaning, cpus))
        for (process_id, meaning, cpus), number in rows.items()
    )
    return [Facts("", tuple(facts)), Table("Threads", ("PID", "PLACE", "CPUS", "COUNT", "NAMES"), table)]


def _meaning(found: PlacedThread) -> str:
    return str(found.place) if found.worker is None else f"{found.place} of worker {found.worker}"


def _names(result: Verification, process_id: int, meaning: str, cpus: str) -> str:
    names = dict.fromkeys(
        t.thread.name
        for t in result.threads
        if (t.process_id, _meaning(t), format_cpu_list(t.thread.allowed)) == (process_id, meaning, cpus)
    )
    shown = ", ".join(list(names)[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown}, and {len(names) - _NAMES_SHOWN} more"


def _document(plan: ContainerPlan, generation: int, result: Verification) -> dict[str, Any]:
    """The comparison as the JSON object that `-o json` prints."""
    return {
        "isApplied": result.is_applied,
        "generation": generation,
        "pinned": format_cpu_list(plan.pinned),
        "withheld": withheld_document(plan.withheld),
        "reason": plan.reason,
        "why": plan.why,
        "missing": list(result.missing),
        "outside": list(result.outside),
        "threads": [
            {
                "processId": t.process_id,
                "threadId": t.thread.thread_id,
                "name": t.thread.name,
                "cpus": format_cpu_list(t.thread.allowed),
                "place": str(t.place),
                "worker": t.worker,
            }
            for t in result.threads
        ],
    }
