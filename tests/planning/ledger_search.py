"""Searches random histories of a node for violated invariants.

`PYTHONPATH=operator:. python -m tests.planning.ledger_search 100000` prints the figures of so many histories; its
exit status is 1 where one of them violated an invariant.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from cpuplan.planning.ledger import plan_node

from .ledger_invariants import violations
from .node_history import PlanNode, random_node

STEPS = 10
"""Events per history: enough for neighbours to come, go and return."""

_CHUNK = 500


def violations_in(seed: int, plan: PlanNode = plan_node) -> list[str]:
    """The violations of the history that a seed makes; the first violated round ends it."""
    node = random_node(seed)
    for number in range(STEPS):
        found = violations(node.step(plan), plan)
        if found:
            return [f"seed {seed}, round {number}: {what}" for what in found]
    return []


def first_violations(seeds: Iterable[int], plan: PlanNode = plan_node) -> list[str]:
    """The violations of the first history that has any."""
    return next((found for seed in seeds if (found := violations_in(seed, plan))), [])


def _search_chunk(size: int, start: int) -> list[str]:
    return first_violations(range(start, start + size))


def main(arguments: list[str]) -> int:
    """Searches as many histories as the argument says, on every CPU of the mask."""
    count = int(arguments[0]) if arguments else 100_000
    found: list[str] = []
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for chunk in pool.map(partial(_search_chunk, _CHUNK), range(0, count, _CHUNK)):
            found += chunk
    print(f"{count} histories of {STEPS} rounds, {len(found)} violations")  # noqa: T201 - a program's output
    print("\n".join(found[:20]))  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
