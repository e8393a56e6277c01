"""The in-process face as engines use it: other number types, iterators, worker processes, forks and signals."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cpuplan
from cpuplan.inprocess import apply, current
from tests.inprocess.threads import LIMIT_SECONDS

NO_DEVICES = Path("/nonexistent")


def alone(cpu: int) -> frozenset[int]:
    """A host without hardware threads."""
    return frozenset({cpu})


planned: Callable[..., cpuplan.CpuPlan] = partial(
    cpuplan.deployment_plan, mask=range(8), usable=6, pci_root=NO_DEVICES, siblings=alone
)


@contextmanager
def held_by_another_thread(lock: Any) -> Iterator[None]:
    """The lock is held by a thread that waits, until a fork asks for it or the block ends."""
    is_held, may_release = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            is_held.set()
            may_release.wait(LIMIT_SECONDS)

    thread = threading.Thread(target=hold)
    thread.start()
    assert is_held.wait(LIMIT_SECONDS)
    os.register_at_fork(before=may_release.set)
    try:
        yield
    finally:
        may_release.set()
        thread.join(LIMIT_SECONDS)


def ends_in_a_forked_child(work: Callable[[], object]) -> bool:
    """Whether `work` ends in a forked child, rather than waiting for ever: then SIGALRM ends the child."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(LIMIT_SECONDS)
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def test_a_plan_error_of_a_worker_process_reaches_its_parent() -> None:
    with pytest.raises(cpuplan.CpuPlanError) as caught:
        planned("banana", [None])

    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own

    assert (type(copy), str(copy), copy.reason) == (cpuplan.CpuPlanError, str(caught.value), "invalid-setting")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_plan_reaches_a_worker_process(protocol: int) -> None:
    plan = planned("auto", [None, None])

    assert pickle.loads(pickle.dumps(plan, protocol)) == plan  # noqa: S301 - our own


@pytest.mark.parametrize("workers", [[None, None], (None, None), iter([None, None]), {None: 1, "": 2}.keys()])
def test_addresses_may_be_anything_that_yields_one_per_worker(workers: Iterable[str | None]) -> None:
    assert cpuplan.format_cpu_list(planned("auto", workers).pinned) == "0-1,7"


@pytest.mark.parametrize(
    "call",
    [
        partial(planned, "auto"),
        partial(cpuplan.devices_plan, "off"),
        cpuplan.device_addresses,
        cpuplan.claim_gpus,
    ],
)
def test_one_text_is_never_taken_for_one_address_per_character(call: Callable[[str], object]) -> None:
    with pytest.raises(TypeError, match=r"is the text '0000:1b:00.0': expected .*\['0000:1b:00.0'\]"):
        call("0000:1b:00.0")


@pytest.mark.parametrize("device", [0, None, b"cuda:0"])
def test_a_device_that_is_no_text_is_refused_by_its_value(device: Any) -> None:
    with pytest.raises(TypeError, match=f"device {device!r} is no text; expected a form like cuda:0"):
        cpuplan.device_addresses([device])


@pytest.mark.parametrize("mask", [np.arange(8), list(range(8)), {n: n for n in range(8)}, iter(range(8))])
def test_a_mask_of_another_librarys_numbers_gives_the_same_plan_and_the_same_json(mask: Iterable[int]) -> None:
    plan = planned("auto", [None], mask=mask, usable=np.int64(6))

    assert plan == planned("auto", [None])
    assert plan.to_json() == planned("auto", [None]).to_json()


@pytest.mark.parametrize("mask", ["0-3", [1.5], [None]])
def test_a_mask_that_is_no_set_of_cpu_numbers_is_refused(mask: Any) -> None:
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        planned("auto", [None], mask=mask)


def test_at_least_one_cpu_is_usable_whatever_an_engine_says() -> None:
    plan = planned("off", [None], usable=0)

    assert plan.usable == 1
    assert cpuplan.CpuPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("setting", [np.array([4, 5]), np.array(["off", "auto"]), True, 4.0, None, b"auto", "\u0664"])
def test_anything_else_as_a_setting_is_a_plan_error_that_names_the_three_forms(setting: object) -> None:
    with pytest.raises(cpuplan.CpuPlanError, match="expected off, auto or a CPU number"):
        planned(setting, [None])
    with pytest.raises(cpuplan.CpuPlanError, match="expected off, auto or a CPU number"):
        cpuplan.devices_plan(setting, ["cuda:0"])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_forked_while_another_thread_asks_for_the_plan_can_ask_too() -> None:
    with held_by_another_thread(current._lock):
        assert ends_in_a_forked_child(cpuplan.plan)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_forked_while_another_thread_pins_can_look_at_the_pins() -> None:
    pins = cpuplan.pin_step_threads(0, plan=planned("off", [None]))

    with held_by_another_thread(apply._lock):
        assert ends_in_a_forked_child(pins.check)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_forked_while_the_watch_is_about_to_wait_can_undo_it(tmp_path: Path) -> None:
    """In that moment the watch's thread holds the lock of the event that ends it."""
    held: list[Any] = []
    real = threading.Event

    def event() -> Any:
        held.append(real())
        return held[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "Event", event)
        undo = cpuplan.watch_plan(lambda _: None, folder=tmp_path, every_seconds=3600)
    with held_by_another_thread(held[0]._cond):
        assert ends_in_a_forked_child(undo)
    undo()


def test_a_signal_handler_may_ask_for_the_plan_while_its_thread_asks_for_it() -> None:
    def interrupted() -> None:
        with current._lock:
            cpuplan.plan()

    assert ends_in_a_forked_child(interrupted)
