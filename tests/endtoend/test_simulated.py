"""Pinned plans: a simulated eight-GPU server, planned by the real agent through the real API server."""

from __future__ import annotations

from cpuplan.host.sysfs import read_topology
from cpuplan.model.podplan import ContainerPlan, Status
from cpuplan.planning.cores import Geometry
from cpuplan.planning.deployment import plan_deployment
from tests.conftest import TreeOf
from tests.endtoend.conftest import SIMULATED_NODE, Stage, until
from tests.simulation.nodes import Simulation


def container(stage: Stage, name: str) -> ContainerPlan:
    plan = stage.plan(name).container("engine")
    assert plan is not None
    return plan


def test_a_deployment_alone_gets_exactly_the_plan_of_the_library(
    stage: Stage, simulation: Simulation, own_machine: TreeOf
) -> None:
    stage.make_pod("llm", annotations={"step_thread_core": "auto"}, gpus=2, node=SIMULATED_NODE, limits={"cpu": "16"})
    plan = container(stage, "llm")
    topology = read_topology(own_machine("h100-server"))
    addresses = [worker.address for worker in plan.workers]
    alone = plan_deployment(
        "auto",
        addresses,
        mask=topology.online,
        usable=16,
        geometry=Geometry(topology.gpus_like(addresses), topology.siblings_of),
    )
    assert plan.as_cpu_plan() == alone
    assert alone.pinned


def test_neighbours_never_overlap_and_the_first_never_moves(stage: Stage, simulation: Simulation) -> None:
    stage.make_pod("a", annotations={"step_thread_core": "auto"}, gpus=2, node=SIMULATED_NODE)
    first = container(stage, "a")
    stage.make_pod("b", annotations={"step_thread_core": "auto"}, gpus=2, node=SIMULATED_NODE)
    stage.make_pod("c", annotations={"step_thread_core": "100"}, gpus=1, node=SIMULATED_NODE)
    others = [container(stage, name) for name in ("b", "c")]
    assert [plan.status for plan in others] == [Status.PINNED, Status.PINNED]
    pins = [first.pinned, *(plan.pinned for plan in others)]
    assert sum(len(pin) for pin in pins) == len(frozenset().union(*pins))
    assert container(stage, "a").pinned == first.pinned
    until(lambda: not container(stage, "a").pool_cpus & others[0].pinned, "the pools of the first make room")


def test_a_restarted_agent_moves_nothing_and_plans_what_came_meanwhile(stage: Stage, simulation: Simulation) -> None:
    stage.make_pod("a", annotations={"step_thread_core": "auto"}, gpus=1, node=SIMULATED_NODE)
    before = stage.plan("a")
    simulation.stop_agent(SIMULATED_NODE, kill=True)
    stage.make_pod("b", annotations={"step_thread_core": "auto"}, gpus=1, node=SIMULATED_NODE)
    stage.until_running("b")
    assert stage.plan("a") == before
    simulation.start_agent(SIMULATED_NODE)
    later = container(stage, "b")
    assert later.status is Status.PINNED
    kept = stage.plan("a").container("engine")
    assert kept is not None
    assert kept.pinned == before.container("engine").pinned  # type: ignore[union-attr]
    assert not kept.pinned & later.pinned


def test_a_held_cpu_number_is_an_error_that_names_the_holder(stage: Stage, simulation: Simulation) -> None:
    stage.make_pod("a", annotations={"step_thread_core": "100"}, gpus=1, node=SIMULATED_NODE)
    assert container(stage, "a").status is Status.PINNED
    stage.make_pod("b", annotations={"step_thread_core": "212"}, gpus=1, node=SIMULATED_NODE)
    plan = container(stage, "b")
    assert (plan.status, plan.reason) == (Status.ERROR, "conflict")
    assert f"{stage.namespace}/a" in plan.why


def test_a_pod_that_ends_frees_its_cores_for_the_next(stage: Stage, simulation: Simulation) -> None:
    stage.make_pod("a", annotations={"step_thread_core": "100"}, gpus=1, node=SIMULATED_NODE)
    pinned = container(stage, "a").pinned
    stage.delete("a")
    stage.make_pod("b", annotations={"step_thread_core": "100"}, gpus=1, node=SIMULATED_NODE)
    assert container(stage, "b").pinned == pinned
