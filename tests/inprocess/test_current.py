"""This process's plan: installed, computed once, and made from this host."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from functools import partial

import pytest

import cpuplan
from cpuplan.host.affinity import process_mask, usable_cpus
from cpuplan.host.root import HostRoot
from cpuplan.host.sysfs import read_siblings
from cpuplan.inprocess import current
from cpuplan.inprocess.current import deployment_plan, devices_plan, install, plan
from cpuplan.model.errors import CpuPlanError
from cpuplan.model.plan import CpuPlan
from tests.inprocess.threads import LIMIT_SECONDS

SOME_PLAN = CpuPlan(frozenset({0, 1}), 1, why="made up")
OTHER_PLAN = CpuPlan(frozenset({0, 1}), 2, why="made up later")


@pytest.fixture(autouse=True)
def no_plan_installed() -> Iterator[None]:
    install(None)
    yield
    install(None)


def test_without_an_install_nothing_is_pinned_and_the_pools_fit_this_process() -> None:
    found = plan()

    assert (found.mask, found.usable, found.pinned) == (process_mask(), usable_cpus(), frozenset())


def test_the_computed_plan_is_computed_once() -> None:
    assert plan() is plan()


def test_the_last_install_wins() -> None:
    install(SOME_PLAN)
    install(OTHER_PLAN)

    assert plan() is OTHER_PLAN


def test_installing_none_computes_anew() -> None:
    first = plan()
    install(SOME_PLAN)
    install(None)

    assert plan() == first
    assert plan() is not first


def test_a_first_plan_never_overwrites_an_install_that_came_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    is_computing, may_go_on = threading.Event(), threading.Event()
    seen: list[CpuPlan] = []

    def slow_mask() -> frozenset[int]:
        is_computing.set()
        assert may_go_on.wait(LIMIT_SECONDS)
        return frozenset({0})

    monkeypatch.setattr(current, "process_mask", slow_mask)
    thread = threading.Thread(target=lambda: seen.append(plan()))
    thread.start()
    assert is_computing.wait(LIMIT_SECONDS)
    install(SOME_PLAN)
    may_go_on.set()
    thread.join(LIMIT_SECONDS)

    assert seen == [SOME_PLAN]
    assert plan() is SOME_PLAN


def test_a_plan_is_made_from_the_trees_that_are_given(own_machine) -> None:  # type: ignore[no-untyped-def]
    server: HostRoot = own_machine("h100-server")

    found = deployment_plan(
        "auto",
        ["0000:1b:00.0"],
        mask=frozenset(range(224)),
        usable=16,
        pci_root=server.pci_folder,
        siblings=partial(read_siblings, root=server),
    )

    assert [cpuplan.format_cpu_list(worker.cpus) for worker in found.workers if worker] == ["0,112"]
    assert (found.result, found.left) == (55, 13)


def test_without_a_mask_the_plan_is_for_this_process() -> None:
    found = deployment_plan("off", [None])

    assert (found.mask, found.usable) == (process_mask(), usable_cpus())


def test_usable_is_this_processes_also_when_a_mask_is_given() -> None:
    assert deployment_plan("off", [None], mask=frozenset(range(999))).usable == usable_cpus()


def test_an_invalid_setting_names_the_value_and_the_three_forms() -> None:
    with pytest.raises(CpuPlanError, match=r"banana.*off, auto or a CPU number") as caught:
        deployment_plan("banana", [None])

    assert caught.value.reason == "invalid-setting"


def test_addresses_are_resolved_for_auto_only() -> None:
    asked: list[int] = []

    def resolver(kind: str, index: int) -> str | None:
        asked.append(index)
        return None

    devices_plan("off", ["cuda:0"], resolver=resolver)
    first = list(asked)
    devices_plan("auto", ["cuda:0", "cuda:1"], resolver=resolver)

    assert (first, asked) == ([], [0, 1])


def test_a_child_forked_while_another_thread_installs_can_still_ask_for_its_plan() -> None:
    held, timer = threading.Event(), threading.Event()

    def install_slowly() -> None:
        with current._lock:
            held.set()
            timer.wait(0.2)

    thread = threading.Thread(target=install_slowly)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        current.plan()
        os._exit(0)
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
