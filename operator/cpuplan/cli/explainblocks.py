"""A container's plan and its reasons as tables, for `cpuplan explain`."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.cpulist import format_cpu_list
from ..model.podplan import ContainerPlan
from ..planning.budget import Budget, budget_of, counted
from ..planning.candidates import Candidates
from ..planning.explain import Sentence
from .output import Block, Facts, Table
from .reasons import candidates_table, reasons_table


@dataclass(frozen=True, slots=True)
class Reasons:
    """Why a container's plan is what it is; empty where that is not known."""

    sentences: tuple[Sentence, ...] = ()
    candidates: tuple[Candidates, ...] = ()


def container_blocks(title: str, plan: ContainerPlan, reasons: Reasons) -> list[Block]:
    """One container's plan: facts, workers, budget, and its reasons as far as they are known."""
    budget, pools = budget_of(plan.as_cpu_plan(), len(plan.workers)), plan.pools
    facts = [
        ("setting", plan.setting),
        ("status", f"{plan.status} ({plan.reason})"),
        ("why", plan.why),
        ("mask", f"{format_cpu_list(plan.mask) or 'unknown'} ({counted(len(plan.mask), 'CPU')})"),
        *([("withheld", ", ".join(map(str, plan.withheld)))] if plan.withheld else []),
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
    blocks: list[Block] = [Facts(title, tuple(facts))]
    if workers:
        blocks.append(Table("Workers", ("WORKER", "DEVICE", "ID", "CPUS", "WHY"), workers))
    outputs = counted(pools.encode_workers, "output")
    demands = (
        ("pinned", counted(budget.pinned, "CPU"), "of the step threads and the result threads"),
        ("preprocess", counted(budget.preprocess, "thread"), "intra-op threads of the server's API process"),
        ("encode", counted(budget.encode, "thread"), f"{outputs} at once x {counted(pools.png_threads, 'thread')}"),
        ("copy", counted(budget.copy, "thread"), f"{outputs} at once x {counted(pools.copy_workers, 'thread')}"),
        ("remains", counted(max(0, budget.remains), "CPU"), _remains_sentence(budget)),
    )
    blocks.append(Table(f"Budget of {counted(budget.usable, 'usable CPU')}", ("FOR", "MOST", "WHAT"), demands))
    if reasons.sentences:
        blocks.append(reasons_table("Reasons", reasons.sentences))
    if reasons.candidates:
        blocks.append(candidates_table("Every CPU of the node", reasons.candidates))
    return blocks


def _remains_sentence(budget: Budget) -> str:
    if budget.remains >= 0:
        return "stay idle when every pool is busy"
    left = counted(max(1, budget.usable - budget.pinned), "CPU")
    return f"the pools share {left} and are seldom all busy; then their threads take turns"
