"""Every worked case of the specification comes out equal."""

from collections.abc import Callable
from functools import cache, partial

from cpuplan import CpuPlan, deployment_plan
from cpuplan.host.root import HostRoot
from cpuplan.host.sysfs import read_siblings
from cpuplan.model.cpulist import parse_cpu_list
from cpuplan.planning.cores import Geometry
from cpuplan.planning.deployment import plan_deployment
from tests.cases import each_case
from tests.planning.vectors import Json, machine_of, read_lines, topology_of, wrong_answers

SYNTHETIC = read_lines("plan-synthetic.jsonl")
ON_MACHINES = read_lines("plan-machines.jsonl")


@each_case("name", list(SYNTHETIC))
def test_every_synthetic_case_comes_out_equal(name: str) -> None:
    line = SYNTHETIC[name]
    assert line.machine is not None
    topology = topology_of(line.machine)

    def plan(call: Json) -> CpuPlan:
        return plan_deployment(
            call["setting"],
            call["addresses"],
            mask=parse_cpu_list(call["mask"]),
            usable=call["usable"],
            geometry=Geometry(topology.gpus_like(call["addresses"]), topology.siblings_of),
        )

    assert wrong_answers(line, plan) == []


@each_case("name", list(ON_MACHINES))
def test_every_case_on_a_real_machine_comes_out_equal(name: str, machine: Callable[[str], HostRoot]) -> None:
    line = ON_MACHINES[name]
    root = machine(machine_of(line))
    siblings = cache(partial(read_siblings, root=root))

    def plan(call: Json) -> CpuPlan:
        return deployment_plan(
            call["setting"],
            call["addresses"],
            mask=parse_cpu_list(call["mask"]),
            usable=call["usable"],
            pci_root=root.pci_folder,
            siblings=siblings,
        )

    assert wrong_answers(line, plan) == []
