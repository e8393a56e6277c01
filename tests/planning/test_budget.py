"""Pins and pools against what the quota lets run at once."""

from __future__ import annotations

import pytest

from cpuplan.host.root import HostRoot
from cpuplan.model.plan import CpuPlan
from cpuplan.planning.budget import budget_of, counted
from tests.conftest import TreeOf
from tests.podvolume import plan_of_pod

SERVER = "h100-server"


@pytest.fixture
def server(own_machine: TreeOf) -> HostRoot:
    """A two-socket server with eight H100."""
    return own_machine(SERVER)


def budget(server: HostRoot, gpus: tuple[int, ...], quota: float | None):  # type: ignore[no-untyped-def]
    plan = plan_of_pod(SERVER, server, gpus=gpus, quota=quota).containers[0][1]
    return budget_of(plan.as_cpu_plan(), len(plan.workers))


def test_a_large_quota_has_room_for_every_pool(server: HostRoot) -> None:
    found = budget(server, (0, 1), 64.0)

    assert (found.usable, found.pinned, found.preprocess, found.encode, found.copy) == (64, 5, 4, 32, 56)
    assert found.remains == 64 - 5 - 4 - 56
    assert found.shortage is None


def test_what_remains_is_counted_after_the_larger_of_encoding_and_copying(server: HostRoot) -> None:
    found = budget(server, (0,), 12.5)

    assert (found.usable, found.pinned, found.preprocess, found.encode, found.copy) == (12, 3, 2, 8, 9)
    assert found.remains == -2


def test_a_quota_too_small_for_its_workers_is_said_in_advance(server: HostRoot) -> None:
    found = budget(server, (0, 1, 2, 3), 4.0)

    assert found.shortage == (
        "4 usable CPUs cannot serve 4 workers: 10 are needed, for pins or a step thread each, a result thread "
        "and a pool thread; raise the CPU limit, or run fewer workers"
    )


def test_one_worker_is_not_told_to_become_fewer(server: HostRoot) -> None:
    assert budget(server, (0,), 2.0).shortage == (
        "2 usable CPUs cannot serve 1 worker: 4 are needed, for pins or a step thread each, a result thread "
        "and a pool thread; raise the CPU limit"
    )


def test_without_workers_no_quota_is_too_small() -> None:
    assert budget_of(CpuPlan(frozenset({0, 1}), 1), 0).shortage is None


@pytest.mark.parametrize(("quota", "is_short"), [(3.9, True), (4.0, False)])
def test_the_needed_cpus_are_exactly_enough(server: HostRoot, quota: float, is_short: bool) -> None:
    found = budget(server, (0,), quota)

    assert found.needed == 4
    assert (found.shortage is not None) == is_short


def test_workers_that_are_not_pinned_need_a_cpu_each_as_well(server: HostRoot) -> None:
    plan = plan_of_pod(SERVER, server, gpus=(0, 1, 2, 3), quota=5.0, setting="off").containers[0][1]

    found = budget_of(plan.as_cpu_plan(), len(plan.workers))

    assert (found.pinned, found.needed) == (0, 6)
    assert found.shortage is not None


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 workers"), (1, "1 worker"), (1.0, "1 worker"), (2.5, "2.5 workers")]
)
def test_one_thing_is_not_called_several(number: float, text: str) -> None:
    assert counted(number, "worker") == text


def test_where_the_mask_is_too_small_a_higher_limit_is_no_remedy() -> None:
    shortage = budget_of(CpuPlan(frozenset({0, 1}), 1), 1).shortage
    assert shortage is not None
    assert shortage.endswith("a pool thread; give the container more CPUs")
