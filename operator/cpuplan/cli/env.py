"""`cpuplan env`: the plan as variables, or as arguments of the programs that start workers.

eval "$(cpuplan env)"
vllm serve MODEL $(cpuplan env -o vllm)
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Callable
from typing import Any

from ..host.affinity import process_mask
from ..host.sysfs import THIS_HOST, read_functions, read_nodes
from ..inprocess.environment import thread_variables
from ..inprocess.foreign import foreign_binders
from ..inprocess.launchers import (
    DevicePlace,
    device_places,
    openmp_variables,
    sglang_arguments,
    taskset_arguments,
    torchrun_arguments,
    vllm_arguments,
)
from ..inprocess.published import NotPublished, PublishedPlan
from ..model.cpulist import format_cpu_list
from ..model.plan import CpuPlan
from ..model.pools import THREAD_VARIABLES
from ..model.topology import HostTopology
from ..planning.budget import budget_of
from .budget import budget_document
from .inforce import (
    PlanInForce,
    add_plan_arguments,
    add_size_arguments,
    chosen_threads,
    plan_in_force,
    say,
    warn,
)

_ARGUMENTS: dict[str, Callable[[tuple[DevicePlace, ...]], list[str]]] = {
    "vllm": vllm_arguments,
    "sglang": sglang_arguments,
    "torchrun": torchrun_arguments,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `cpuplan env`."""
    parser.add_argument(
        "-o",
        "--output",
        choices=("sh", "json", *_ARGUMENTS, "taskset", "omp"),
        default="sh",
        help="sh: export lines for eval; json: everything; omp: OpenMP's, with places; else arguments of that program",
    )
    add_size_arguments(parser)
    add_plan_arguments(parser)


def run(namespace: argparse.Namespace) -> int:
    """Prints the variables or arguments; returns 0, also where there is nothing to print."""
    in_force = plan_in_force(namespace)
    thread_count = chosen_threads(namespace, in_force)
    if namespace.output == "json":
        print(json.dumps(_document(in_force, thread_count), indent=2))
        return 0
    warn(in_force)
    if namespace.output not in _ARGUMENTS and isinstance(in_force.publication, NotPublished):
        say(f"{in_force.origin}: {in_force.publication.why}")
    pool_cpus = in_force.pool_cpus if in_force.plan.pinned else frozenset[int]()
    if namespace.output == "sh":
        _print_exports(thread_variables(thread_count, os.environ))
    elif namespace.output == "omp":
        _print_exports(openmp_variables(thread_count, pool_cpus))
    elif namespace.output == "taskset":
        print(shlex.join(taskset_arguments(in_force.pool_cpus or process_mask())))
    else:
        places = _places(in_force)
        _say_what_is_left_out(places, in_force.plan)
        print(shlex.join(_ARGUMENTS[namespace.output](places)))
    return 0


def _places(in_force: PlanInForce) -> tuple[DevicePlace, ...]:
    """The devices of the plan, with what this host's sysfs says of them; none where nothing is pinned."""
    published = in_force.publication
    if not in_force.plan.pinned or not isinstance(published, PublishedPlan):
        return ()
    addresses = [worker.address for worker in in_force.workers]
    functions = read_functions(THIS_HOST.pci_folder, addresses)
    return device_places(published.plan, HostTopology(frozenset(), {}, functions, read_nodes(THIS_HOST)))


def _say_what_is_left_out(places: tuple[DevicePlace, ...], plan: CpuPlan) -> None:
    """Says on standard error why the arguments of a program lack its NUMA binding, or are none at all."""
    doubts = [place.doubt for place in places if place.doubt is not None]
    if doubts:
        say(f"no NUMA binding: {'; '.join(doubts)}")
    elif not places:
        say(f"no arguments: {'no worker of the plan has a device' if plan.pinned else plan.why}")


def _print_exports(variables: dict[str, str]) -> None:
    for name, value in variables.items():
        print(f"export {name}={shlex.quote(value)}")


def _document(in_force: PlanInForce, thread_count: int) -> dict[str, Any]:
    """Everything as the JSON object that `-o json` prints."""
    plan = in_force.plan
    publication = in_force.publication
    return {
        "origin": in_force.origin,
        "notPublished": publication.reason if isinstance(publication, NotPublished) else None,
        "threads": thread_count,
        "variables": {variable.name: str(thread_count) for variable in THREAD_VARIABLES},
        "setByUser": {v.name: os.environ[v.name] for v in THREAD_VARIABLES if v.name in os.environ},
        "mask": format_cpu_list(plan.mask),
        "usable": plan.usable,
        "pinned": format_cpu_list(plan.pinned),
        "poolCpus": format_cpu_list(in_force.pool_cpus),
        "workers": [
            {
                "address": place.address,
                "node": place.node,
                "cpus": format_cpu_list(place.cpus),
                "doubt": place.doubt,
            }
            for place in _places(in_force)
        ],
        "budget": budget_document(budget_of(plan, len(in_force.workers))),
        "foreignBinders": [
            {"name": binder.name, "seen": binder.seen, "turnOff": binder.turn_off}
            for binder in foreign_binders(pool_cpus=in_force.pool_cpus)
        ],
    }
