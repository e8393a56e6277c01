"""The plan that a command works with: the published one, else what this process's own quota and mask allow."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

from ..host.affinity import process_mask, usable_cpus
from ..inprocess.environment import threads_per_process
from ..inprocess.foreign import foreign_binders
from ..inprocess.published import CONTAINER_VARIABLE, PLAN_FOLDER, Publication, PublishedPlan, wait_for_plan
from ..model.plan import CpuPlan
from ..model.podplan import WorkerPlan
from ..planning.budget import budget_of, counted
from .streams import tell


@dataclass(frozen=True, slots=True)
class PlanInForce:
    """The plan, and what a command has to know beside it.

    Attributes:
        plan: what is pinned and what is left.
        workers: the deployment's workers and their devices, empty where no plan names them.
        pool_cpus: where pools should float.
        origin: where the plan comes from, for people.
        publication: the published plan, or why there is none.
    """

    plan: CpuPlan
    workers: tuple[WorkerPlan, ...]
    pool_cpus: frozenset[int]
    origin: str
    publication: Publication


def add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --plan-dir, --container and --wait-seconds."""
    group = parser.add_argument_group("which plan")
    group.add_argument(
        "--plan-dir", type=Path, default=PLAN_FOLDER, metavar="DIR", help="where the plan volume is mounted"
    )
    group.add_argument("--container", metavar="NAME", help=f"the container; default: the variable {CONTAINER_VARIABLE}")
    group.add_argument(
        "--wait-seconds", type=seconds, default=0.0, metavar="N", help="longest wait for a plan (default: 0)"
    )


def add_size_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --processes and --threads."""
    group = parser.add_argument_group("how many threads")
    group.add_argument(
        "--processes", type=count, metavar="N", help="processes that share the CPUs left; default: the plan's workers"
    )
    group.add_argument(
        "--threads", type=count, metavar="N", help="threads of each pool; default: CPUs left / processes"
    )


def plan_in_force(namespace: argparse.Namespace) -> PlanInForce:
    """The published plan of this container once it is there, else the plan of this process alone."""
    found = wait_for_plan(namespace.wait_seconds, namespace.container, folder=namespace.plan_dir)
    if isinstance(found, PublishedPlan):
        plan = found.plan
        origin = f"plan generation {found.generation} of container {found.container}"
        return PlanInForce(plan.as_cpu_plan(), plan.workers, plan.pool_cpus, origin, found)
    own = CpuPlan(process_mask(), usable_cpus(), why=f"no published plan: {found.why}")
    return PlanInForce(own, (), own.mask, "this process's own mask and quota (no published plan)", found)


def chosen_threads(namespace: argparse.Namespace, in_force: PlanInForce) -> int:
    """Threads of each pool, as asked for or as the CPUs left allow."""
    if namespace.threads is not None:
        return int(namespace.threads)
    return threads_per_process(in_force.plan.left, namespace.processes or len(in_force.workers))


def warn(in_force: PlanInForce) -> None:
    """Says on standard error that the quota is too small, or smaller than the plan's, and who else binds threads."""
    found = in_force.publication
    if isinstance(found, PublishedPlan) and found.plan.usable < found.as_published.usable:
        planned = counted(found.as_published.usable, "usable CPU")
        say(f"warning: the quota allows {counted(found.plan.usable, 'CPU')} by now, fewer than the plan's {planned}")
    shortage = budget_of(in_force.plan, len(in_force.workers)).shortage
    if shortage is not None:
        say(f"warning: {shortage}")
    for binder in foreign_binders(pool_cpus=in_force.pool_cpus):
        say(f"warning: {binder}")


def say(sentence: str) -> None:
    """One sentence on standard error, where a command's own output is not."""
    tell(f"cpuplan: {sentence}")


def seconds(text: str) -> float:
    """An argument that is a time, 0 or more."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no time in seconds; expected a form like 15")
    return value


def count(text: str) -> int:
    """An argument that is a whole number of at least 1."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 6 and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)
