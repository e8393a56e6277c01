"""Plans as sentences: every CPU taken and every candidate passed over, with file and value."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpuplan.host.root import HostRoot
from cpuplan.host.sysfs import read_topology
from cpuplan.model.errors import CpuPlanError
from cpuplan.model.podplan import ContainerPlan
from cpuplan.model.topology import HostTopology
from cpuplan.planning.explain import Decision, Sentence, Topic, explain, holders_of
from cpuplan.planning.ledger import plan_node
from tests.planning.node_history import random_node
from tests.planning.test_deployment import plan_on
from tests.planning.test_ledger import GPU_A, GPU_B, kept, key, request

TreeOf = Callable[[str], HostRoot]


@pytest.fixture(scope="module")
def h100(own_machine: TreeOf) -> HostTopology:
    return read_topology(own_machine("h100-server"))


def alone(topology: HostTopology, setting: object, *gpus: str | None, mask: str | None = None) -> tuple[Sentence, ...]:
    """The explanation of a plan for one deployment without neighbours."""
    made = plan_on(topology, setting, gpus, mask=mask)
    return explain(Decision.of_plan(setting, gpus, made, 16.0), topology)


def texts(sentences: tuple[Sentence, ...], topic: Topic) -> list[str]:
    return [sentence.text for sentence in sentences if sentence.topic == topic]


def sources(sentences: tuple[Sentence, ...], topic: Topic) -> list[str]:
    return [str(source) for sentence in sentences if sentence.topic == topic for source in sentence.sources]


def test_the_topics_come_in_their_order(h100: HostTopology) -> None:
    order = list(Topic)
    places = [order.index(sentence.topic) for sentence in alone(h100, "auto", GPU_B, GPU_B)]
    assert places == sorted(places)


def test_what_was_asked_is_said_first(h100: HostTopology) -> None:
    assert alone(h100, "auto", GPU_B)[0].text == (
        "step_thread_core is auto; the mask has 224 CPUs (0-223), with a quota of 16 CPUs 16 can run at once"
    )


def test_every_cpu_taken_has_its_step_and_its_file(h100: HostTopology) -> None:
    said = alone(h100, "auto", GPU_B)
    assert texts(said, Topic.TAKEN) == [
        "worker 0 takes core 1,113: core 1 of NUMA node 0, counted from 0; GPU 0000:43:00.0 is GPU 2 of 4 there "
        "and may take every core 1 + k x 4",
        "result threads take CPU 54, the first of core 54,166: core 1 of NUMA node 0, counted from the top, for the "
        "first worker's GPU",
    ]
    assert sources(said, Topic.TAKEN) == [
        "/sys/devices/system/cpu/cpu1/topology/thread_siblings_list: 1,113",
        "/sys/devices/system/cpu/cpu54/topology/thread_siblings_list: 54,166",
    ]


def test_the_pool_has_the_files_that_place_the_gpu(h100: HostTopology) -> None:
    said = alone(h100, "auto", GPU_B, GPU_A)
    assert texts(said, Topic.POOL) == [
        "4 GPUs share NUMA node 0: 56 cores of the mask (0-55,112-167); the lowest and the highest 4 are claimed for "
        "them"
    ]
    assert sources(said, Topic.POOL) == [
        "/sys/bus/pci/devices/0000:43:00.0/numa_node: 0",
        "/sys/bus/pci/devices/0000:43:00.0/local_cpulist: 0-55,112-167",
    ]


def test_one_gpu_one_core_and_one_cpu_are_told_in_the_singular(own_machine: TreeOf) -> None:
    topology = read_topology(own_machine("gh200"))
    gpu = next(each for each in topology.functions if topology.gpus_like([each.address]))
    both = alone(topology, "auto", gpu.address)
    assert texts(both, Topic.POOL)[0].startswith("one GPU has NUMA node 0: ")
    assert texts(both, Topic.POOL)[0].endswith("; the lowest and the highest are claimed for it")

    made = plan_on(topology, "auto", [gpu.address], mask="3")
    one = explain(Decision.of_plan("auto", [gpu.address], made, 1.0), topology)
    assert "the mask has 1 CPU (3), with a quota of 1 CPU " in texts(one, Topic.INPUT)[0]
    assert texts(one, Topic.POOL) == ["one GPU has NUMA node 0: 1 core of the mask (3), fewer than the 2 that it needs"]


def test_a_plan_without_rivals_passes_over_nothing(h100: HostTopology) -> None:
    assert texts(alone(h100, "auto", GPU_B, GPU_B, GPU_A), Topic.REJECTED) == []


def test_a_core_that_the_own_result_threads_hold_is_a_rejected_candidate(own_machine: TreeOf) -> None:
    """One worker near GPU a, one without a GPU: the second searches the whole mask from core 0, which is taken."""
    topology = read_topology(own_machine("h100-server"))
    said = alone(topology, "auto", GPU_A, None)
    assert texts(said, Topic.REJECTED) == ["worker 1: core 0,112 is held by worker 0"]


def test_the_outcome_is_the_published_reason_and_sentence(h100: HostTopology) -> None:
    said = alone(h100, "auto", GPU_B, mask="0-3,112-115")
    assert texts(said, Topic.OUTCOME) == [
        "too-few-cores: nothing is pinned: 4 GPUs share NUMA node 0 and need 8 cores there, the mask has 4"
    ]
    assert texts(said, Topic.POOL) == [
        "4 GPUs share NUMA node 0: 4 cores of the mask (0-3,112-115), fewer than the 8 that they need"
    ]


def test_a_gpu_near_no_cpu_is_told_the_nearest_node_that_has_some(own_machine: TreeOf) -> None:
    said = alone(read_topology(own_machine("gb200-memory-nodes")), "auto", "0019:01:00.0")
    assert (
        "no CPU is local to GPU 0019:01:00.0: it shares the CPUs that no GPU's NUMA node claims; the nearest node "
        "with CPUs is 1 (distance 80), where agent.topologyOverride can put it" in texts(said, Topic.TOPOLOGY)
    )
    assert "/sys/bus/pci/devices/0019:01:00.0/numa_node: 26" in sources(said, Topic.TOPOLOGY)


def test_an_override_is_named_as_the_source(h100: HostTopology) -> None:
    made = plan_on(h100, "auto", [GPU_B])
    decision = Decision.of_plan("auto", [GPU_B], made, None)
    said = explain(decision, h100, placed_by={GPU_B: "/etc/cpuplan/topology.json"})
    assert sources(said, Topic.POOL) == ["/etc/cpuplan/topology.json: 0", "/etc/cpuplan/topology.json: 0-55,112-167"]


def test_a_device_that_the_host_does_not_have_is_said(h100: HostTopology) -> None:
    said = alone(h100, "auto", "0000:ff:00.0")
    assert said[1].text == "the host has no device 0000:ff:00.0: its worker is planned on the whole mask"
    assert str(said[1].sources[0]) == "/sys/bus/pci/devices/0000:ff:00.0/vendor: missing or malformed"


def neighbours_of(name: str, plans: dict[tuple[str, str], ContainerPlan]) -> dict[str, ContainerPlan]:
    return {f"default/{uid[4:]} container {engine}": p for (uid, engine), p in plans.items() if uid != f"uid-{name}"}


def test_steps_that_neighbours_hold_are_rejected_by_their_names(h100: HostTopology) -> None:
    plans = plan_node([request(name, GPU_B, created=second) for second, name in enumerate("abc")], h100)
    holders = holders_of(neighbours_of("c", plans), h100)
    said = explain(Decision.of_container(plans[key("c")]), h100, holders=holders)
    assert texts(said, Topic.REJECTED) == [
        "result threads: core 54,166 is held by default/a container engine",
        "result threads: core 50,162 is held by default/b container engine",
        "worker 0: core 1,113 is held by default/a container engine",
        "worker 0: core 5,117 is held by default/b container engine",
    ]


def test_a_step_that_has_become_free_is_said_to_move_nothing(h100: HostTopology) -> None:
    asked = [request("a", GPU_B), request("b", GPU_B, created=1)]
    plans = plan_node(kept(asked, plan_node(asked, h100))[1:], h100)
    said = explain(Decision.of_container(plans[key("b")]), h100)
    assert texts(said, Topic.REJECTED)[1] == (
        "worker 0: core 1,113 is free now, it was held when this plan was made; pins do not move"
    )


def test_a_refused_deployment_is_told_every_step_and_its_holder(h100: HostTopology) -> None:
    mask = "0-7,112-119"
    plans = plan_node([request("a", GPU_A, mask=mask), request("b", GPU_A, mask=mask, created=1)], h100)
    holders = holders_of(neighbours_of("b", plans), h100)
    said = explain(Decision.of_container(plans[key("b")]), h100, holders=holders)
    assert texts(said, Topic.REJECTED) == [
        "result threads: core 7,119 is held by default/a container engine",
        "worker 0: core 0,112 is held by default/a container engine",
    ]


def test_a_number_is_explained_from_its_core_up(h100: HostTopology) -> None:
    plans = plan_node([request("a", GPU_B), request("b", None, None, setting="0", created=1)], h100)
    holders = holders_of(neighbours_of("b", plans), h100)
    said = explain(Decision.of_container(plans[key("b")]), h100, holders=holders)
    assert texts(said, Topic.TAKEN)[1] == "worker 1 takes core 2,114: the next free core from CPU 0 up"
    assert texts(said, Topic.REJECTED) == ["the workers: core 1,113 is held by default/a container engine"]


def test_an_error_is_explained_by_its_text(h100: HostTopology) -> None:
    with pytest.raises(CpuPlanError) as refusal:
        plan_on(h100, 999, [GPU_B])
    said = explain(Decision.of_error(999, [GPU_B], h100.online, None, refusal.value), h100)
    assert said[-1].text.startswith("outside-mask: step_thread_core 999: CPU 999 is outside the mask (0-223)")


def test_a_plan_of_another_topology_is_explained_without_an_error(h100: HostTopology) -> None:
    """The node was changed under the plan: CPUs that the plan names are gone."""
    plan = plan_node([request("a", GPU_B)], h100)[key("a")]
    stale = replace(plan, mask=frozenset({900, 901}), result=901)
    assert explain(Decision.of_container(stale), h100)[-1].topic == Topic.OUTCOME


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**48))
def test_every_plan_of_a_random_node_is_explained_completely(seed: int) -> None:
    """Each pinned core has one sentence, and no candidate is said to be free where its holder is known."""
    node = random_node(seed)
    done = [node.step() for _ in range(6)][-1]
    names = {asked.key: str(asked) for asked in done.requests}
    for asked in done.requests:
        plan = done.plans[asked.key]
        others = {names[k]: p for k, p in done.plans.items() if k != asked.key}
        said = explain(Decision.of_container(plan), done.topology, holders=holders_of(others, done.topology))
        assert len(texts(said, Topic.TAKEN)) == sum(bool(w.cpus) for w in plan.workers) + (plan.result is not None)
