"""Following the published plan: installing, re-pinning, renewing wiped pins, withdrawal."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from cpuplan.host.affinity import process_mask
from cpuplan.host.root import HostRoot
from cpuplan.inprocess import published
from cpuplan.inprocess.apply import PinState, pin_pool_threads, pin_step_threads
from cpuplan.inprocess.current import install
from cpuplan.inprocess.current import plan as current_plan
from cpuplan.inprocess.follow import Followed, follow_plan
from cpuplan.inprocess.published import NotPublished, PublishedPlan
from cpuplan.model import reasons
from cpuplan.model.podplan import PodPlan
from tests.inprocess.descriptors import no_free_descriptor
from tests.inprocess.threads import LIMIT_SECONDS, waiting_thread
from tests.podvolume import PodVolume, next_generation, plan_of_pod

SERVER = "h100-server"
OFTEN_SECONDS = 0.005


@pytest.fixture(autouse=True)
def no_plan_installed() -> Iterator[None]:
    install(None)
    yield
    install(None)


@pytest.fixture
def thread_id() -> Iterator[int]:
    with waiting_thread() as found:
        yield found


class Listener:
    """What a follower told, and the newest of it that fits a condition."""

    def __init__(self) -> None:
        self.told: queue.Queue[Followed] = queue.Queue()

    def until(self, fits: Callable[[Followed], bool]) -> Followed:
        while not fits(found := self.told.get(timeout=LIMIT_SECONDS)):
            pass
        return found


def becomes_true(condition: Callable[[], bool]) -> bool:
    """Whether the condition comes true within the limit."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not (is_true := condition()) and time.monotonic() < deadline:
        threading.Event().wait(OFTEN_SECONDS)
    return is_true


def on_real_cpu(plan: PodPlan, cpu: int) -> PodPlan:
    """The plan with its worker on a CPU that the machine running the tests has, and pools on all others."""
    name, engine = plan.containers[0]
    mask = process_mask()
    worker = replace(engine.workers[0], cpus=frozenset({cpu}))
    pinned = replace(
        engine, mask=mask, workers=(worker,), result=None, pool_cpus=mask - {cpu}, reason=reasons.PINNED, usable=2
    )
    return replace(plan, containers=((name, pinned),))


@pytest.fixture
def first_cpu() -> int:
    if len(process_mask()) < 2:
        pytest.skip("needs two CPUs: run the tests where sched_getaffinity allows at least two")
    return min(process_mask())


@pytest.fixture
def plan(server: HostRoot, first_cpu: int) -> PodPlan:
    return on_real_cpu(plan_of_pod(SERVER, server), first_cpu)


def test_a_plan_that_comes_later_is_installed_and_applied(
    volume: PodVolume, server: HostRoot, plan: PodPlan, thread_id: int, first_cpu: int
) -> None:
    volume.publish_nothing()
    steps = pin_step_threads(0, [thread_id])
    listener = Listener()

    undo = follow_plan([steps], listener.told.put, folder=volume.folder, root=server, every_seconds=OFTEN_SECONDS)
    before = listener.until(lambda told: isinstance(told.publication, NotPublished))
    volume.publish_plan(plan)
    after = listener.until(lambda told: isinstance(told.publication, PublishedPlan))
    undo()

    assert [pin.state for pin in before.threads] == [PinState.UNPLANNED]
    assert [pin.state for pin in after.threads] == [PinState.APPLIED]
    assert os.sched_getaffinity(thread_id) == {first_cpu}
    assert current_plan() == plan.containers[0][1].as_cpu_plan()


def test_a_new_generation_moves_the_threads(
    volume: PodVolume, server: HostRoot, plan: PodPlan, thread_id: int, first_cpu: int
) -> None:
    volume.publish_plan(plan)
    steps, listener = pin_step_threads(0, [thread_id]), Listener()
    other_cpu = max(process_mask())

    undo = follow_plan([steps], listener.told.put, folder=volume.folder, root=server, every_seconds=OFTEN_SECONDS)
    listener.until(lambda told: isinstance(told.publication, PublishedPlan))
    volume.publish_plan(next_generation(on_real_cpu(plan, other_cpu)))
    listener.until(lambda told: isinstance(told.publication, PublishedPlan) and told.publication.generation == 2)
    undo()

    assert os.sched_getaffinity(thread_id) == {other_cpu}


def test_pools_float_on_what_the_node_left_them(
    volume: PodVolume, server: HostRoot, plan: PodPlan, thread_id: int, first_cpu: int
) -> None:
    volume.publish_plan(plan)
    pools, listener = pin_pool_threads([thread_id]), Listener()

    undo = follow_plan([pools], listener.told.put, folder=volume.folder, root=server, every_seconds=OFTEN_SECONDS)
    listener.until(lambda told: isinstance(told.publication, PublishedPlan))
    undo()

    assert os.sched_getaffinity(thread_id) == process_mask() - {first_cpu}


def test_a_withdrawn_plan_gives_the_threads_back_and_is_uninstalled(
    volume: PodVolume, server: HostRoot, plan: PodPlan, thread_id: int
) -> None:
    volume.publish_plan(plan)
    steps, listener = pin_step_threads(0, [thread_id]), Listener()

    undo = follow_plan([steps], listener.told.put, folder=volume.folder, root=server, every_seconds=OFTEN_SECONDS)
    listener.until(lambda told: isinstance(told.publication, PublishedPlan))
    volume.publish_nothing()
    listener.until(lambda told: isinstance(told.publication, NotPublished))
    undo()

    assert os.sched_getaffinity(thread_id) == process_mask()
    assert current_plan().reason == "off"


def test_a_plan_of_a_later_version_withdraws_nothing(
    volume: PodVolume, server: HostRoot, plan: PodPlan, thread_id: int, first_cpu: int
) -> None:
    volume.publish_plan(plan)
    steps, listener = pin_step_threads(0, [thread_id]), Listener()

    undo = follow_plan([steps], listener.told.put, folder=volume.folder, root=server, every_seconds=OFTEN_SECONDS)
    listener.until(lambda told: isinstance(told.publication, PublishedPlan))
    volume.publish('{"version": 99}')
    told = listener.until(lambda told: isinstance(told.publication, NotPublished))
    undo()

    assert isinstance(told.publication, NotPublished)
    assert told.publication.reason == "invalid-plan"
    assert os.sched_getaffinity(thread_id) == {first_cpu}
    assert current_plan().reason == "pinned"


def test_a_quota_that_shrinks_is_told_before_the_plan_follows(
    volume: PodVolume, server: HostRoot, plan: PodPlan, thread_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    quotas: list[float | None] = [None]
    monkeypatch.setattr(published, "visible_quota", lambda _: quotas[-1])
    volume.publish_plan(plan)
    listener = Listener()

    undo = follow_plan(
        [pin_step_threads(0, [thread_id])],
        listener.told.put,
        folder=volume.folder,
        root=server,
        every_seconds=OFTEN_SECONDS,
    )
    first = listener.until(lambda told: isinstance(told.publication, PublishedPlan))
    quotas.append(1.5)
    second = listener.until(lambda told: told != first)
    undo()

    assert isinstance(first.publication, PublishedPlan)
    assert isinstance(second.publication, PublishedPlan)
    assert (first.publication.plan.usable, second.publication.plan.usable) == (2, 1)
    assert second.publication.as_published == first.publication.plan
    assert current_plan().usable == 1
    assert [pin.state for pin in second.threads] == [PinState.APPLIED]


def test_a_process_without_free_descriptors_keeps_plan_and_pins(
    volume: PodVolume, server: HostRoot, plan: PodPlan, thread_id: int, first_cpu: int
) -> None:
    volume.publish_plan(plan)
    steps = pin_step_threads(0, [thread_id])
    listener = Listener()

    undo = follow_plan([steps], listener.told.put, folder=volume.folder, root=server, every_seconds=OFTEN_SECONDS)
    listener.until(lambda told: isinstance(told.publication, PublishedPlan))
    with no_free_descriptor():
        blind = listener.until(lambda told: isinstance(told.publication, NotPublished))
    listener.until(lambda told: isinstance(told.publication, PublishedPlan))
    undo()

    assert isinstance(blind.publication, NotPublished)
    assert (blind.publication.reason, [pin.state for pin in blind.threads]) == ("unreadable", [PinState.APPLIED])
    assert current_plan() == plan.containers[0][1].as_cpu_plan()
    assert os.sched_getaffinity(thread_id) == {first_cpu}


def test_a_pin_that_somebody_wiped_is_renewed(
    volume: PodVolume, server: HostRoot, plan: PodPlan, thread_id: int, first_cpu: int
) -> None:
    volume.publish_plan(plan)
    steps, listener = pin_step_threads(0, [thread_id]), Listener()
    undo = follow_plan([steps], listener.told.put, folder=volume.folder, root=server, every_seconds=OFTEN_SECONDS)
    listener.until(lambda told: isinstance(told.publication, PublishedPlan))

    os.sched_setaffinity(thread_id, process_mask())

    assert becomes_true(lambda: os.sched_getaffinity(thread_id) == {first_cpu})
    undo()


def test_nothing_is_told_twice(volume: PodVolume, server: HostRoot, plan: PodPlan, thread_id: int) -> None:
    volume.publish_plan(plan)
    steps, listener = pin_step_threads(0, [thread_id]), Listener()

    undo = follow_plan([steps], listener.told.put, folder=volume.folder, root=server, every_seconds=OFTEN_SECONDS)
    listener.until(lambda told: isinstance(told.publication, PublishedPlan))
    volume.publish_plan(plan)
    volume.publish_plan(next_generation(plan))
    then = listener.told.get(timeout=LIMIT_SECONDS)
    undo()

    assert isinstance(then.publication, PublishedPlan)
    assert then.publication.generation == 2
    assert listener.told.empty()


def test_ending_the_following_leaves_the_pins_to_their_own_undo(
    volume: PodVolume, server: HostRoot, plan: PodPlan, thread_id: int, first_cpu: int
) -> None:
    volume.publish_plan(plan)
    steps, listener = pin_step_threads(0, [thread_id]), Listener()
    undo = follow_plan([steps], listener.told.put, folder=volume.folder, root=server, every_seconds=OFTEN_SECONDS)
    listener.until(lambda told: isinstance(told.publication, PublishedPlan))

    undo()
    pinned = os.sched_getaffinity(thread_id)
    steps.undo()

    assert pinned == {first_cpu}
    assert os.sched_getaffinity(thread_id) == process_mask()
