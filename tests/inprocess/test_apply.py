"""Pinning threads for real, on the CPUs of the machine that runs the tests."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator

import pytest

from cpuplan.host.affinity import process_mask
from cpuplan.inprocess.apply import (
    Pins,
    PinState,
    pin_pool_threads,
    pin_result_threads,
    pin_step_threads,
    step_threads,
)
from cpuplan.inprocess.current import install
from cpuplan.model.plan import CpuPlan, StepCpus
from tests.inprocess.descriptors import no_free_descriptor
from tests.inprocess.threads import LIMIT_SECONDS, waiting_thread

NO_SUCH_CPU = 8191
"""A CPU that no machine of ours has: the kernel drops it from every mask."""


@pytest.fixture
def two_cpus() -> tuple[int, int]:
    """Two CPUs that this process may run on."""
    cpus = sorted(process_mask())
    if len(cpus) < 2:
        pytest.skip("needs two CPUs: run the tests where sched_getaffinity allows at least two")
    return cpus[0], cpus[1]


@pytest.fixture
def plan(two_cpus: tuple[int, int]) -> CpuPlan:
    """Worker 0 on the first CPU, results on the second, worker 1 not pinned."""
    first, second = two_cpus
    return CpuPlan(process_mask(), 2, (StepCpus(frozenset({first}), "first"), None), second, "made up", "pinned")


@pytest.fixture
def thread_id() -> Iterator[int]:
    with waiting_thread() as found:
        yield found


def cpus(*numbers: int) -> frozenset[int]:
    return frozenset(numbers)


def affinity(thread_id: int) -> frozenset[int]:
    return frozenset(os.sched_getaffinity(thread_id))


def test_a_step_thread_runs_on_its_workers_core_alone(plan: CpuPlan, thread_id: int, two_cpus: tuple[int, int]) -> None:
    pins = pin_step_threads(0, [thread_id], plan=plan)

    (pin,) = pins.check()
    assert (pin.state, pin.actual, pin.why) == (PinState.APPLIED, cpus(two_cpus[0]), f"on CPUs {two_cpus[0]}")
    assert affinity(thread_id) == {two_cpus[0]}


def test_no_other_thread_and_not_the_process_is_pinned(plan: CpuPlan, thread_id: int) -> None:
    mine, mask = affinity(threading.get_native_id()), affinity(os.getpid())

    pin_step_threads(0, [thread_id], plan=plan)

    assert affinity(threading.get_native_id()) == mine
    assert affinity(os.getpid()) == mask


def test_the_calling_thread_pins_itself(plan: CpuPlan, two_cpus: tuple[int, int]) -> None:
    seen: list[tuple[frozenset[int], frozenset[int]]] = []

    def step() -> None:
        pins = pin_step_threads(0, plan=plan)
        pinned = affinity(threading.get_native_id())
        pins.undo()
        seen.append((pinned, affinity(threading.get_native_id())))

    thread = threading.Thread(target=step)
    thread.start()
    thread.join(LIMIT_SECONDS)

    assert seen == [(frozenset({two_cpus[0]}), process_mask())]


def test_the_result_threads_get_the_result_cpu(plan: CpuPlan, thread_id: int, two_cpus: tuple[int, int]) -> None:
    pin_result_threads([thread_id], plan=plan)

    assert affinity(thread_id) == {two_cpus[1]}


def test_pool_threads_stay_off_every_pinned_cpu(thread_id: int, two_cpus: tuple[int, int]) -> None:
    first, _ = two_cpus
    plan = CpuPlan(process_mask(), 2, (StepCpus(frozenset({first}), "first"),), None, "made up", "pinned")

    pin_pool_threads([thread_id], plan=plan)

    assert affinity(thread_id) == process_mask() - {first}


def test_pools_of_an_unpinned_plan_are_left_alone(thread_id: int) -> None:
    (pin,) = pin_pool_threads([thread_id], plan=CpuPlan(process_mask(), 2)).check()

    assert (pin.state, pin.actual) == (PinState.UNPLANNED, process_mask())


def test_a_worker_without_pins_is_left_alone_and_said_to_be(plan: CpuPlan, thread_id: int) -> None:
    (pin,) = pin_step_threads(1, [thread_id], plan=plan).check()

    assert pin.state is PinState.UNPLANNED
    assert pin.why.startswith("the plan pins no CPU for the step threads of worker 1; it may run on ")
    assert affinity(thread_id) == process_mask()


@pytest.mark.parametrize("worker", [-1, 2, 99])
def test_a_worker_that_the_plan_does_not_have_is_left_alone(plan: CpuPlan, thread_id: int, worker: int) -> None:
    (pin,) = pin_step_threads(worker, [thread_id], plan=plan).check()

    assert pin.state is PinState.UNPLANNED


def test_without_a_plan_given_the_installed_one_counts(
    plan: CpuPlan, thread_id: int, two_cpus: tuple[int, int]
) -> None:
    install(plan)
    try:
        pin_step_threads(0, [thread_id])
    finally:
        install(None)

    assert affinity(thread_id) == {two_cpus[0]}


def test_undo_gives_back_what_the_thread_had(plan: CpuPlan, thread_id: int) -> None:
    pins = pin_step_threads(0, [thread_id], plan=plan)

    pins.undo()
    pins.undo()

    assert affinity(thread_id) == process_mask()
    assert pins.check() == ()


def test_undo_leaves_a_thread_that_somebody_else_has_moved(
    plan: CpuPlan, thread_id: int, two_cpus: tuple[int, int]
) -> None:
    pins = pin_step_threads(0, [thread_id], plan=plan)
    os.sched_setaffinity(thread_id, {two_cpus[1]})

    pins.undo()

    assert affinity(thread_id) == {two_cpus[1]}


def test_a_wiped_pin_is_seen_and_renewed(plan: CpuPlan, thread_id: int, two_cpus: tuple[int, int]) -> None:
    pins = pin_step_threads(0, [thread_id], plan=plan)
    os.sched_setaffinity(thread_id, process_mask())

    (wiped,) = pins.check()
    (renewed,) = pins.repair()

    assert wiped.state is PinState.WIPED
    assert wiped.why.startswith(f"was moved from CPUs {two_cpus[0]} to ")
    assert (renewed.state, affinity(thread_id)) == (PinState.APPLIED, cpus(two_cpus[0]))


def test_cpus_that_the_kernel_drops_are_reported_as_partly_applied(thread_id: int, two_cpus: tuple[int, int]) -> None:
    first, _ = two_cpus
    pins = Pins(step_threads(0), frozenset({first, NO_SUCH_CPU}))

    pin = pins.add(thread_id)

    assert (pin.state, pin.actual) == (PinState.PARTIAL, cpus(first))
    assert pin.why == f"of CPUs {first},{NO_SUCH_CPU} the cpuset allows {first}"


def test_a_partly_applied_pin_is_undone_too(thread_id: int, two_cpus: tuple[int, int]) -> None:
    pins = Pins(step_threads(0), frozenset({two_cpus[0], NO_SUCH_CPU}))
    pins.add(thread_id)

    pins.undo()

    assert affinity(thread_id) == process_mask()


def test_cpus_that_the_kernel_refuses_leave_the_thread_where_it_was(thread_id: int) -> None:
    pins = Pins(step_threads(0), frozenset({NO_SUCH_CPU}))

    pin = pins.add(thread_id)

    assert (pin.state, pin.actual) == (PinState.REFUSED, process_mask())
    assert f"CPUs {NO_SUCH_CPU} were refused (Invalid argument); it may run on " in pin.why


def test_a_refused_move_does_not_leave_a_thread_on_the_cpus_of_the_old_plan(plan: CpuPlan, thread_id: int) -> None:
    pins = pin_step_threads(0, [thread_id], plan=plan)

    (pin,) = pins.move(frozenset({NO_SUCH_CPU}))

    assert (pin.state, affinity(thread_id)) == (PinState.REFUSED, process_mask())


def test_a_refused_thread_is_pinned_once_its_cpus_are_there(thread_id: int, two_cpus: tuple[int, int]) -> None:
    pins = Pins(step_threads(0), frozenset({NO_SUCH_CPU}))
    pins.add(thread_id)

    pins.move(frozenset({two_cpus[1]}))

    (pin,) = pins.check()
    assert (pin.state, affinity(thread_id)) == (PinState.APPLIED, cpus(two_cpus[1]))


def test_moving_to_no_cpus_gives_the_threads_back(plan: CpuPlan, thread_id: int) -> None:
    pins = pin_step_threads(0, [thread_id], plan=plan)

    (pin,) = pins.move(frozenset())

    assert (pin.state, affinity(thread_id)) == (PinState.UNPLANNED, process_mask())


def test_after_moves_undo_gives_back_what_the_thread_had_first(
    plan: CpuPlan, thread_id: int, two_cpus: tuple[int, int]
) -> None:
    pins = pin_step_threads(0, [thread_id], plan=plan)
    pins.move(frozenset({two_cpus[1]}))

    pins.undo()

    assert affinity(thread_id) == process_mask()


def test_an_ended_thread_is_said_to_have_ended_and_then_forgotten(plan: CpuPlan) -> None:
    with waiting_thread() as thread_id:
        pins = pin_step_threads(0, [thread_id], plan=plan)

    (pin,) = pins.check()
    assert (pin.state, pin.why) == (PinState.ENDED, f"thread {thread_id} is no thread of this process")
    assert pins.repair() == ()


def test_a_process_without_free_descriptors_keeps_its_threads_in_care(
    plan: CpuPlan, thread_id: int, two_cpus: tuple[int, int]
) -> None:
    before = affinity(thread_id)
    pins = pin_step_threads(0, [thread_id], plan=plan)
    with no_free_descriptor():
        os.sched_setaffinity(thread_id, before)
        (seen,) = pins.check()
        (repaired,) = pins.repair()
        with waiting_thread() as late_id:
            late = pins.add(late_id)
    assert (seen.state, repaired.state, late.state) == (PinState.WIPED, PinState.APPLIED, PinState.APPLIED)
    assert affinity(thread_id) == cpus(two_cpus[0])
    assert [pin.thread_id for pin in pins.repair()] == [thread_id]
    pins.undo()
    assert affinity(thread_id) == before


def test_a_seccomp_filter_is_a_refusal_and_no_end_of_the_thread(
    plan: CpuPlan, thread_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> set[int]:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "sched_getaffinity", refuse)
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    (pin,) = pin_step_threads(0, [thread_id], plan=plan).repair()

    assert (pin.state, pin.actual) == (PinState.REFUSED, plan.mask)
    assert "refused (Operation not permitted)" in pin.why


def test_a_thread_of_another_process_is_never_touched(plan: CpuPlan) -> None:
    parent = os.getppid()
    before = affinity(parent)

    pin = Pins(step_threads(0), frozenset({min(plan.mask)})).add(parent)

    assert pin.state is PinState.ENDED
    assert affinity(parent) == before


def test_adding_a_thread_twice_keeps_what_it_had_first(plan: CpuPlan, thread_id: int) -> None:
    pins = pin_step_threads(0, [thread_id, thread_id], plan=plan)

    pins.undo()

    assert affinity(thread_id) == process_mask()
