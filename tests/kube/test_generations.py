"""A plan that the ledger makes again from what stands on the pod is no new generation, however much was cut."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpuplan.host.root import HostRoot
from cpuplan.host.sysfs import read_topology
from cpuplan.kube.annotations import annotations_of, next_plan, plan_in
from cpuplan.model import reasons
from cpuplan.model.podplan import PodPlan
from cpuplan.model.request import DeploymentRequest, PodRef, Refusal, WorkerDevice
from cpuplan.model.topology import HostTopology
from cpuplan.planning.ledger import plan_node

POD = PodRef("default", "llm-0", "5a1c3a36-7c0c-4d0e-9c6e-2f0b6c9d1e77", "2026-01-01T00:00:00Z")


@pytest.fixture(scope="module")
def h100(own_machine: Callable[[str], HostRoot]) -> HostTopology:
    return read_topology(own_machine("h100-server"))


@dataclass(frozen=True)
class Asked:
    """One container; what has no device is planned anew in every turn, with its whole sentence."""

    workers: int
    quota: float | None
    every: int
    refusal_length: int


ASKED = st.builds(
    Asked,
    workers=st.integers(0, 8),
    quota=st.sampled_from((None, 2.0, 16.5)),
    every=st.sampled_from((1, 2, 3)),
    refusal_length=st.integers(1, 400),
)


def requests_of(asked: list[Asked], topology: HostTopology, published: PodPlan | None) -> list[DeploymentRequest]:
    gpus = [function.address for function in topology.functions]
    return [
        DeploymentRequest(
            pod=POD,
            container=f"engine-{position}",
            position=position,
            setting="auto",
            workers=tuple(WorkerDevice(gpu, f"GPU-422b9bdf-aaaa-bbbb-cccc-{gpu}") for gpu in gpus[: each.workers]),
            devices=tuple(f"GPU-422b9bdf-aaaa-bbbb-cccc-{gpu}" for gpu in gpus[: each.workers]),
            mask=frozenset(range(0, 224, each.every)),
            quota=each.quota,
            refusal=None if each.workers else Refusal(reasons.NO_DEVICE, "n" * each.refusal_length),
            previous=None if published is None else published.container(f"engine-{position}"),
        )
        for position, each in enumerate(asked)
    ]


def turn(asked: list[Asked], topology: HostTopology, published: PodPlan | None) -> PodPlan:
    """What stands on the pod after one turn of its agent."""
    requests = requests_of(asked, topology, published)
    plans = plan_node(requests, topology)
    containers = tuple((request.container, plans[request.key]) for request in requests)
    decided = next_plan(published, PodPlan(1, POD.uid, "9b0c7d7e-1f36-4a52-8f55-0d2a0e8f3b21", "gpu-1", containers))
    read = plan_in(annotations_of(decided))
    assert read is not None
    return read


@settings(max_examples=60)
@given(st.lists(ASKED, min_size=1, max_size=8))
def test_a_turn_without_a_change_makes_no_generation(h100: HostTopology, asked: list[Asked]) -> None:
    first = turn(asked, h100, None)
    assert turn(asked, h100, first) == first


def test_a_shortage_that_comes_later_is_told_also_where_sentences_were_cut(h100: HostTopology) -> None:
    before = [Asked(4, None, 2, 1)] * 2
    first = turn(before, h100, None)
    later = turn([replace(each, quota=2.0) for each in before], h100, first)
    assert not any(worker.why for _, plan in first.containers for worker in plan.workers)
    assert (later.generation, all(plan.shortage for _, plan in later.containers)) == (2, True)
