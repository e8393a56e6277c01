"""Every CPU of a node as a candidate: taken, or why not, for each worker and the result threads."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpuplan.host.root import HostRoot
from cpuplan.host.sysfs import read_topology
from cpuplan.model.cpulist import format_cpu_list, parse_cpu_list
from cpuplan.model.errors import CpuPlanError
from cpuplan.model.podplan import ContainerPlan
from cpuplan.model.request import DeploymentRequest, Refusal
from cpuplan.model.source import Source
from cpuplan.model.topology import HostTopology, PciFunction
from cpuplan.planning.candidates import Candidates, Exclusion, candidates_of
from cpuplan.planning.explain import Decision
from cpuplan.planning.ledger import plan_node
from cpuplan.planning.searches import Fate
from tests.planning.node_history import random_node
from tests.planning.test_deployment import plan_on
from tests.planning.test_ledger import GPU_A, GPU_B, kept, key, request

TreeOf = Callable[[str], HostRoot]
OTHER_SOCKET = "0000:9d:00.0"


@pytest.fixture(scope="module")
def h100(own_machine: TreeOf) -> HostTopology:
    return read_topology(own_machine("h100-server"))


def alone(
    topology: HostTopology, setting: object, *gpus: str | None, mask: str | None = None
) -> tuple[Candidates, ...]:
    """The candidates of a plan for one deployment without neighbours."""
    made = plan_on(topology, setting, gpus, mask=mask)
    return candidates_of(Decision.of_plan(setting, gpus, made, None), topology, neighbours={})


def in_a_ledger(name: str, asked: list[DeploymentRequest], topology: HostTopology) -> tuple[Candidates, ...]:
    """The candidates of one deployment beside the others."""
    return beside(name, plan_node(asked, topology), topology)


def beside(name: str, plans: dict[tuple[str, str], ContainerPlan], topology: HostTopology) -> tuple[Candidates, ...]:
    neighbours = {f"default/{uid[4:]}": plan.pinned for (uid, _), plan in plans.items() if uid != f"uid-{name}"}
    return candidates_of(Decision.of_container(plans[key(name)]), topology, neighbours=neighbours)


def told(found: tuple[Candidates, ...], whose: str) -> dict[str, str]:
    """The CPUs by what is said of them, of one worker (by number) or of the result threads."""
    return {
        c.text: format_cpu_list(c.cpus)
        for c in found
        if (c.is_for_result if whose == "result" else int(whose) in c.workers)
    }


def test_a_worker_alone_has_a_reason_for_every_cpu_of_the_node(h100: HostTopology) -> None:
    assert told(alone(h100, "auto", GPU_B, mask="0-15,56-63,112-127"), "0") == {
        "the search ended with them": "1,113",
        "taken by the result threads of this container": "14",
        "they share cores with CPUs that are taken by the result threads of this container": "126",
        "free: the search ended before it came to them": "5,9,117,121",
        "they are the steps of the other GPUs of NUMA node 0: this one may take every core 1 + k x 4 there, counted "
        "from 0": "0,2-4,6-8,10-11,112,114-116,118-120,122-123",
        "the last 4 cores of NUMA node 0 are kept for result threads, one for each GPU there": "12-13,15,124-125,127",
        "they are not in NUMA node 0, where the GPU is": "56-63",
        "they are not in the mask": "16-55,64-111,128-223",
    }


def test_the_result_threads_search_from_the_top(h100: HostTopology) -> None:
    assert told(alone(h100, "auto", GPU_B, mask="0-15,112-127"), "result") == {
        "the search ended with them": "14",
        "taken by worker 0 of this container": "1,113",
        "they share cores with CPUs that are taken by the result threads of this container": "126",
        "free: the search ended before it came to them": "6,10,118,122",
        "they are the steps of the other GPUs of NUMA node 0: this one may take every core 1 + k x 4 there, counted "
        "from the top": "4-5,7-9,11-13,15,116-117,119-121,123-125,127",
        "the first 4 cores of NUMA node 0 are kept for step threads, one for each GPU there": "0,2-3,112,114-115",
        "they are not in the mask": "16-111,128-223",
    }


def test_cpus_of_another_node_name_the_file_that_places_the_gpu(h100: HostTopology) -> None:
    (remote,) = [c for c in alone(h100, "auto", GPU_B, GPU_A) if c.fate is Fate.REMOTE]
    assert (remote.whose, format_cpu_list(remote.cpus)) == ("workers 0-1, result threads", "56-111,168-223")
    assert list(map(str, remote.sources)) == [
        "/sys/bus/pci/devices/0000:1b:00.0/numa_node: 0",
        "/sys/bus/pci/devices/0000:1b:00.0/local_cpulist: 0-55,112-167",
    ]


def test_workers_of_two_nodes_find_each_others_cpus_remote(h100: HostTopology) -> None:
    found = alone(h100, "auto", GPU_A, OTHER_SOCKET)
    assert told(found, "0")["they are not in NUMA node 0, where the GPU is"] == "56-111,168-223"
    assert told(found, "1")["they are not in NUMA node 1, where the GPU is"] == "0-55,112-167"


def test_cpus_of_neighbours_and_beside_them_are_told_with_their_plan_and_sibling_lists(h100: HostTopology) -> None:
    found = in_a_ledger("b", [request("a", GPU_B), request("b", GPU_B, created=1)], h100)
    held, mates = (
        next(c for c in found if c.fate is fate and "default/a" in c.text) for fate in (Fate.HELD, Fate.SIBLING)
    )
    assert (held.whose, format_cpu_list(held.cpus)) == ("worker 0, result threads", "1,54,113")
    assert list(map(str, held.sources)) == ["plan of default/a: 1,54,113"]
    assert (mates.text, format_cpu_list(mates.cpus)) == (
        "they share cores with CPUs that are pinned for default/a",
        "166",
    )
    assert list(map(str, mates.sources)) == ["/sys/devices/system/cpu/cpu166/topology/thread_siblings_list: 54,166"]


def test_steps_that_have_become_free_are_told_as_such(h100: HostTopology) -> None:
    asked = [request("a", GPU_B), request("b", GPU_B, created=1)]
    plans = plan_node(kept(asked, plan_node(asked, h100))[1:], h100)
    freed = {whose: told(beside("b", plans, h100), whose) for whose in ("0", "result")}
    text = "free now, they were not when this plan was made; pins do not move"
    assert (freed["0"][text], freed["result"][text]) == ("1,113", "54,166")


def test_a_refused_plan_tells_what_was_free_all_the_same(h100: HostTopology) -> None:
    found = alone(h100, "auto", GPU_B, mask="0-3,112-115")
    assert told(found, "0") == {
        "free, but nothing is pinned (too-few-cores)": "0-3,112-115",
        "they are not in the mask": "4-111,116-223",
    }


def test_a_refusal_because_of_neighbours_names_each_of_them(h100: HostTopology) -> None:
    mask = "0-7,112-119"
    asked = [request("a", GPU_B, mask=mask), request("b", GPU_B, mask=mask, created=1)]
    found = told(in_a_ledger("b", asked, h100), "0")
    assert found["pinned for default/a"] == "1,6,113"
    assert "the search ended with them" not in found


def test_a_cpu_number_looks_from_there_up(h100: HostTopology) -> None:
    found = told(alone(h100, "4", GPU_B, None, mask="0-7,112-119"), "1")
    assert found == {
        "the search ended with them": "5,117",
        "taken by worker 0 of this container": "4,116",
        "taken by the result threads of this container": "7",
        "they share cores with CPUs that are taken by the result threads of this container": "119",
        "free: the search ended before it came to them": "6,118",
        "they lie below CPU 4, from which on workers take cores": "0-3,112-115",
        "they are not in the mask": "8-111,120-223",
    }


def test_exclusions_keep_cpus_from_the_mask_the_first_that_names_them_counts(h100: HostTopology) -> None:
    made = plan_on(h100, "auto", [GPU_A], mask="2-55")
    exclusions = (
        Exclusion(Fate.OUTSIDE, parse_cpu_list("56-223"), "not granted", (Source("cpuset", "0-55"),)),
        Exclusion(Fate.ISOLATED, parse_cpu_list("1,60"), "isolated"),
        Exclusion(Fate.RESERVED, parse_cpu_list("0-1,2"), "reserved"),
    )
    found = candidates_of(Decision.of_plan("auto", [GPU_A], made, None), h100, neighbours={}, exclusions=exclusions)
    outside = {c.text: (format_cpu_list(c.cpus), c.fate) for c in found if c.cpus.isdisjoint(made.mask)}
    assert outside == {
        "not granted": ("56-223", Fate.OUTSIDE),
        "isolated": ("1", Fate.ISOLATED),
        "reserved": ("0", Fate.RESERVED),
    }
    of_worker = [c.fate for c in found if 0 in c.workers]
    assert of_worker == sorted(of_worker, key=list(Fate).index)


def test_off_looks_at_nothing(h100: HostTopology) -> None:
    assert alone(h100, "off", GPU_A) == ()


def test_before_the_devices_are_known_nobody_looks_and_it_is_told_what_is_free(h100: HostTopology) -> None:
    waiting = replace(request("b", created=1), workers=(), refusal=Refusal("waiting-for-devices", "they come"))
    found = in_a_ledger("b", [request("a", GPU_B), waiting], h100)
    assert {c.whose for c in found} == {"anybody"}
    assert {c.text for c in found} == {
        "pinned for default/a",
        "they share cores with CPUs that are pinned for default/a",
        "free, but nothing is pinned (waiting-for-devices)",
    }


def test_an_invalid_setting_looks_at_nothing_either(h100: HostTopology) -> None:
    mask = h100.online
    error = CpuPlanError("no", reason="invalid-setting")
    found = candidates_of(Decision.of_error("banana", [GPU_A], mask, None, error), h100, neighbours={})
    assert [(c.whose, c.text) for c in found] == [("anybody", "free, but nothing is pinned (invalid-setting)")]


def test_a_gpu_near_no_cpu_finds_the_cpus_of_others_claimed() -> None:
    """Two GPUs on a board: one is local to CPUs 0-3, of which it claims the lowest and the highest; one to none."""
    topology = HostTopology(
        online=frozenset(range(8)),
        siblings={cpu: frozenset({cpu}) for cpu in range(8)},
        functions=(
            PciFunction("0000:01:00.0", "0x10de", "0x030200", "0", parse_cpu_list("0-3")),
            PciFunction("0000:02:00.0", "0x10de", "0x030200", "7", frozenset()),
        ),
    )
    (remote,) = [c for c in alone(topology, "auto", "0000:02:00.0") if c.fate is Fate.REMOTE]
    assert format_cpu_list(remote.cpus) == "0,3"
    assert remote.text == "they are claimed for the GPUs that they are local to, and no CPU is local to this one"
    assert list(map(str, remote.sources)) == ["/sys/bus/pci/devices/0000:02:00.0/local_cpulist: (empty)"]


def test_what_was_told_comes_back_from_json(h100: HostTopology) -> None:
    found = in_a_ledger("b", [request("a", GPU_B), request("b", GPU_B, created=1)], h100)
    assert tuple(Candidates.from_document(c.to_document()) for c in found) == found


def test_a_full_server_is_told_within_bounds(own_machine: TreeOf) -> None:
    """384 CPUs, 64 workers on eight GPUs, and a neighbour for each of 110 CPUs."""
    topology = read_topology(own_machine("mi300x-server"))
    workers = [function.address for function in topology.functions[:8] for _ in range(8)]
    made = plan_on(topology, "auto", workers)
    free = sorted(topology.online - made.pinned)[:110]
    found = candidates_of(
        Decision.of_plan("auto", workers, made, None),
        topology,
        neighbours={f"a-namespace/an-inference-server-{cpu} container engine": frozenset({cpu}) for cpu in free},
    )
    assert (made.reason, len(topology.online)) == ("pinned", 384)
    assert len(json.dumps([each.to_document() for each in found])) < 256 << 10


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_each_worker_and_the_result_threads_have_every_cpu_once_whatever_happened_to_the_node(seed: int) -> None:
    node = random_node(seed)
    done = [node.step() for _ in range(6)][-1]
    for (uid, name), plan in done.plans.items():
        neighbours = {str(k): p.pinned for k, p in done.plans.items() if k != (uid, name)}
        decision = Decision.of_container(plan)
        found = candidates_of(decision, done.topology, neighbours=neighbours)
        for_workers = [[c for c in found if number in c.workers] for number in range(len(decision.steps))]
        for_others = [c for c in found if c.is_for_result or c.whose == "anybody"]
        for group in [*for_workers, for_others] if found else []:
            cpus = sorted(cpu for c in group for cpu in c.cpus)
            assert cpus == sorted(done.topology.online | plan.mask)
        for number, cpus_of_step in enumerate(decision.steps):
            (taken,) = [c.cpus for c in found if number in c.workers and c.fate is Fate.TAKEN]
            assert taken == cpus_of_step
