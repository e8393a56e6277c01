"""The worked cases of CPUPLAN_CASES/vectors: a machine per line, and what must come out for each call."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cpuplan.model.cpulist import format_cpu_list, parse_cpu_list
from cpuplan.model.errors import CpuPlanError
from cpuplan.model.plan import CpuPlan
from cpuplan.model.topology import HostTopology, PciFunction, normalise_address
from tests.cases import cases_folder

Json = Mapping[str, Any]
PlanCall = Callable[[Json], CpuPlan]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file of vectors: a machine by name or in place, and its cases."""

    name: str
    machine: Json | None
    cases: Sequence[Json]


def read_lines(file: str) -> dict[str, Line]:
    """The lines of one file, by the machine's name or the line's number; none without CPUPLAN_CASES."""
    folder = cases_folder()
    if folder is None:
        return {}
    texts = (folder / "vectors" / file).read_text(encoding="utf-8").splitlines()
    lines = [_line(number, json.loads(text)) for number, text in enumerate(texts, 1)]
    return {line.name: line for line in lines}


def _line(number: int, document: Json) -> Line:
    machine = document.get("machine_name")
    name = f"line-{number}" if machine is None else f"{number}-{machine}"
    return Line(name, document.get("machine"), document["cases"])


def machine_of(line: Line) -> str:
    """The name of the line's machine below machines/."""
    return line.name.partition("-")[2]


def topology_of(machine: Json) -> HostTopology:
    """The topology of a machine that stands in place."""
    siblings = {int(cpu): frozenset(core) for cpu, core in machine["siblings"].items()}
    functions = [
        PciFunction(
            normalise_address(function["address"]),
            function["vendor"],
            function["class"],
            function["numa_node"],
            None if function["local_cpulist"] is None else parse_cpu_list(function["local_cpulist"]),
        )
        for function in machine["pci"]
    ]
    return HostTopology(frozenset(siblings), siblings, tuple(sorted(functions, key=lambda f: f.address)))


def wrong_answers(line: Line, plan: PlanCall) -> list[str]:
    """One sentence per case that comes out otherwise than it must."""
    return [
        f"{case['call']}: expected {case['expect']}, got {got}"
        for case in line.cases
        if (got := _answer(case["call"], plan)) != case["expect"]
    ]


def _answer(call: Json, plan: PlanCall) -> dict[str, object]:
    try:
        made = plan(call)
    except CpuPlanError as error:
        return {"error": error.reason}
    return {
        "reason": made.reason,
        "workers": [None if worker is None else format_cpu_list(worker.cpus) for worker in made.workers],
        "result": made.result,
        "pinned": format_cpu_list(made.pinned),
        "left": made.left,
        "preprocess_threads": made.preprocess_threads,
        "png_threads": made.png_threads,
        "encode_workers": made.encode_workers,
        "copy_workers": made.copy_workers,
    }
