"""Reading, waiting for and watching the plan that the agent publishes into the pod."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cpuplan.host.root import HostRoot, read_text
from cpuplan.inprocess import published
from cpuplan.inprocess.published import (
    CONTAINER_VARIABLE,
    NotPublished,
    Publication,
    PublishedPlan,
    read_pod_plan,
    read_published,
    wait_for_plan,
    wait_for_pod_plan,
    watch_plan,
)
from cpuplan.model import reasons
from cpuplan.model.podplan import PodPlan
from tests.podvolume import POD_UID, PodVolume, next_generation, plan_of_pod

SERVER = "h100-server"
LIMIT_SECONDS = 20
"""Longest wait for a thread to do what a test asks; reached only where it never will."""


@pytest.fixture(autouse=True)
def no_container_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CONTAINER_VARIABLE, raising=False)


@pytest.fixture
def plan(server: HostRoot) -> PodPlan:
    return plan_of_pod(SERVER, server, gpus=(0, 1), quota=24.0)


class Clock:
    """A clock that only pauses advance; looks at the volume can be scheduled on it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.pauses: list[float] = []
        self.due: list[tuple[float, object]] = []

    def now(self) -> float:
        return self.seconds

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.seconds += seconds
        for item in [entry for entry in self.due if entry[0] <= self.seconds]:
            self.due.remove(item)
            item[1]()  # type: ignore[operator]


def reason_of(found: object) -> str:
    assert isinstance(found, NotPublished), found
    return found.reason


def test_the_plan_for_this_pod_and_this_boot_is_read(volume: PodVolume, server: HostRoot, plan: PodPlan) -> None:
    volume.publish_plan(plan)

    found = read_published(folder=volume.folder, root=server)

    assert isinstance(found, PublishedPlan)
    assert (found.container, found.generation, found.pod_plan) == ("engine", 1, plan)
    assert found.plan.as_cpu_plan().pinned == plan.containers[0][1].pinned


def test_a_pod_without_the_volume_is_told_apart_from_one_without_a_plan_yet(
    volume: PodVolume, server: HostRoot, tmp_path: Path
) -> None:
    volume.publish_nothing()

    assert reason_of(read_pod_plan(tmp_path / "nowhere", server)) == "no-volume"
    assert reason_of(read_pod_plan(volume.folder, server)) == "not-yet"


def test_an_empty_plan_is_told_with_both_of_its_causes(volume: PodVolume, server: HostRoot) -> None:
    """Removing step_thread_core from a pod empties its plan too, and the pod's volume does not tell which it was."""
    volume.publish_nothing()

    found = read_pod_plan(volume.folder, server)

    assert isinstance(found, NotPublished)
    assert found.why == (
        f"{volume.folder}/plan is empty: the pod asks for no plan (any more), or its node's agent has published none "
        "yet"
    )


def test_a_plan_for_another_pod_is_not_followed(volume: PodVolume, server: HostRoot, plan: PodPlan) -> None:
    volume.publish(plan.to_json(), uid="another-uid")

    found = read_pod_plan(volume.folder, server)

    assert found == NotPublished("other-pod", f"the plan is for pod UID {POD_UID}, this pod's UID is another-uid")


def test_a_plan_without_a_uid_file_is_not_followed(volume: PodVolume, server: HostRoot, plan: PodPlan) -> None:
    volume.publish_plan(plan)
    (volume.folder / "..data" / "uid").unlink()

    assert reason_of(read_pod_plan(volume.folder, server)) == "other-pod"


def test_a_plan_for_an_earlier_boot_is_not_followed(volume: PodVolume, server: HostRoot, plan: PodPlan) -> None:
    volume.publish_plan(replace(plan, boot_id="an-earlier-boot"))

    found = read_pod_plan(volume.folder, server)

    assert reason_of(found) == "other-boot"
    assert "an-earlier-boot of node gpu-1" in str(found)


def test_a_host_without_a_boot_id_follows_no_plan(volume: PodVolume, plan: PodPlan, tmp_path: Path) -> None:
    volume.publish_plan(plan)

    assert reason_of(read_pod_plan(volume.folder, HostRoot.at(tmp_path / "bare"))) == "other-boot"


@pytest.mark.parametrize("name", ["plan", "uid", "boot_id"])
def test_a_file_that_is_there_and_cannot_be_read_says_nothing_of_the_plan(
    volume: PodVolume, plan: PodPlan, tmp_path: Path, name: str
) -> None:
    volume.publish_plan(plan)
    root = HostRoot.at(tmp_path / "host")
    boot_id = root.proc / "sys" / "kernel" / "random" / "boot_id"
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text(plan.boot_id)
    assert read_pod_plan(volume.folder, root) == plan
    file = boot_id if name == "boot_id" else (volume.folder / name).resolve()
    file.unlink()
    file.mkdir()

    found = read_pod_plan(volume.folder, root)

    assert isinstance(found, NotPublished)
    assert found.reason == "unreadable"
    assert found.why.startswith(str(boot_id if name == "boot_id" else volume.folder / name))


@pytest.mark.parametrize("name", ["plan", "uid"])
def test_a_volume_that_is_renewed_under_the_reader_is_read_anew(
    volume: PodVolume, server: HostRoot, plan: PodPlan, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The kubelet removes the old folder after the reader was led into it."""
    volume.publish_nothing() if name == "plan" else volume.publish_plan(plan)
    renewals = [lambda: volume.publish_plan(plan)]

    def read_late(path: Path) -> str | None:
        if path.name == name and renewals:
            renewals.pop()()
            return None
        return read_text(path)

    monkeypatch.setattr(published, "read_text", read_late)

    assert read_pod_plan(volume.folder, server) == plan
    assert renewals == []


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{", id="cut off"),
        pytest.param("[]", id="no object"),
        pytest.param("null", id="null"),
        pytest.param('{"version": 99}', id="a later version"),
        pytest.param('{"version": 1}', id="nothing but a version"),
        pytest.param("[" * 100_000, id="nested without end"),
        pytest.param("\x00\xff", id="no text"),
    ],
)
def test_what_is_no_plan_is_said_to_be_none(volume: PodVolume, server: HostRoot, text: str) -> None:
    volume.publish(text)

    assert reason_of(read_pod_plan(volume.folder, server)) == "invalid-plan"


def test_the_variable_names_the_container(volume: PodVolume, server: HostRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    volume.publish_plan(plan_of_pod(SERVER, server, containers=("first", "second")))
    monkeypatch.setenv(CONTAINER_VARIABLE, "second")

    found = read_published(folder=volume.folder, root=server)

    assert isinstance(found, PublishedPlan)
    assert found.container == "second"


def test_two_planned_containers_and_no_name_are_an_answer_not_a_guess(volume: PodVolume, server: HostRoot) -> None:
    volume.publish_plan(plan_of_pod(SERVER, server, containers=("first", "second")))

    found = read_published(folder=volume.folder, root=server)

    assert found == NotPublished(
        "other-container", "the plan is for the containers first, second; set CPUPLAN_CONTAINER"
    )


def test_a_container_that_is_not_planned_is_told_who_is(volume: PodVolume, server: HostRoot, plan: PodPlan) -> None:
    volume.publish_plan(plan)

    found = read_published("sidecar", folder=volume.folder, root=server)

    assert found == NotPublished("other-container", "container sidecar is not planned; the plan is for engine")


def test_waiting_ends_as_soon_as_the_plan_is_there(volume: PodVolume, server: HostRoot, plan: PodPlan) -> None:
    volume.publish_nothing()
    clock = Clock()
    clock.due.append((0.5, lambda: volume.publish_plan(plan)))

    found = wait_for_plan(15, folder=volume.folder, root=server, now=clock.now, pause=clock.pause)

    assert isinstance(found, PublishedPlan)
    assert 0.5 <= clock.seconds < 0.75


def test_waiting_ends_at_its_bound_with_the_reason(volume: PodVolume, server: HostRoot) -> None:
    volume.publish_nothing()
    clock = Clock()

    found = wait_for_plan(15, folder=volume.folder, root=server, now=clock.now, pause=clock.pause)

    assert reason_of(found) == "not-yet"
    assert clock.seconds == pytest.approx(15)


def test_waiting_looks_often_at_first_and_four_times_a_second_later(volume: PodVolume, server: HostRoot) -> None:
    volume.publish_nothing()
    clock = Clock()

    wait_for_plan(3, folder=volume.folder, root=server, now=clock.now, pause=clock.pause)

    assert clock.pauses[:5] == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.25])
    assert max(clock.pauses) == 0.25


def test_waiting_for_no_time_looks_once(volume: PodVolume, server: HostRoot, plan: PodPlan) -> None:
    volume.publish_plan(plan)
    clock = Clock()

    found = wait_for_plan(0, folder=volume.folder, root=server, now=clock.now, pause=clock.pause)

    assert isinstance(found, PublishedPlan)
    assert clock.pauses == []


def test_a_pod_without_the_volume_does_not_wait(server: HostRoot, tmp_path: Path) -> None:
    clock = Clock()

    found = wait_for_plan(15, folder=tmp_path / "nowhere", root=server, now=clock.now, pause=clock.pause)

    assert (reason_of(found), clock.pauses) == ("no-volume", [])


def test_a_plan_that_waits_for_its_devices_is_waited_out(volume: PodVolume, server: HostRoot, plan: PodPlan) -> None:
    engine = replace(plan.containers[0][1], reason=reasons.WAITING_FOR_DEVICES, workers=(), result=None)
    volume.publish_plan(replace(plan, containers=(("engine", engine),)))
    clock = Clock()
    clock.due.append((1.0, lambda: volume.publish_plan(next_generation(plan))))

    found = wait_for_pod_plan(15, volume.folder, server, now=clock.now, pause=clock.pause)

    assert found == next_generation(plan)


def test_a_plan_that_never_gets_its_devices_is_returned_at_the_bound(
    volume: PodVolume, server: HostRoot, plan: PodPlan
) -> None:
    engine = replace(plan.containers[0][1], reason=reasons.WAITING_FOR_DEVICES, workers=(), result=None)
    waiting = replace(plan, containers=(("engine", engine),))
    volume.publish_plan(waiting)
    clock = Clock()

    assert wait_for_pod_plan(15, volume.folder, server, now=clock.now, pause=clock.pause) == waiting
    assert clock.seconds == pytest.approx(15)


def test_a_watch_tells_the_first_plan_a_new_generation_and_the_withdrawal(
    volume: PodVolume, server: HostRoot, plan: PodPlan
) -> None:
    volume.publish_plan(plan)
    heard: queue.Queue[Publication] = queue.Queue()

    undo = watch_plan(heard.put, folder=volume.folder, root=server, every_seconds=0.005)
    try:
        first = heard.get(timeout=LIMIT_SECONDS)
        volume.publish_plan(next_generation(plan))
        second = heard.get(timeout=LIMIT_SECONDS)
        volume.publish_nothing()
        third = heard.get(timeout=LIMIT_SECONDS)
    finally:
        undo()

    assert isinstance(first, PublishedPlan)
    assert isinstance(second, PublishedPlan)
    assert (first.generation, second.generation) == (1, 2)
    assert reason_of(third) == "not-yet"


def test_a_watch_says_nothing_twice(volume: PodVolume, server: HostRoot, plan: PodPlan) -> None:
    volume.publish_plan(plan)
    heard: queue.Queue[Publication] = queue.Queue()

    undo = watch_plan(heard.put, folder=volume.folder, root=server, every_seconds=0.005)
    heard.get(timeout=LIMIT_SECONDS)
    volume.publish_plan(plan)
    volume.publish_plan(next_generation(plan))
    then = heard.get(timeout=LIMIT_SECONDS)
    undo()

    assert isinstance(then, PublishedPlan)
    assert then.generation == 2
    assert heard.empty()


def test_a_watch_that_cannot_read_for_a_while_tells_nothing(
    volume: PodVolume, server: HostRoot, plan: PodPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume.publish_plan(plan)
    heard: queue.Queue[Publication] = queue.Queue()
    is_blind, has_looked = threading.Event(), threading.Event()
    unread: list[Path] = []

    def read_if_not_blind(path: Path) -> str | None:
        if not is_blind.is_set():
            return read_text(path)
        unread.append(path)
        if unread[-2:] == [path, path]:  # a look takes a file for unreadable at the second try
            has_looked.set()
        return None

    monkeypatch.setattr(published, "read_text", read_if_not_blind)
    undo = watch_plan(heard.put, folder=volume.folder, root=server, every_seconds=0.005)
    heard.get(timeout=LIMIT_SECONDS)
    is_blind.set()
    assert has_looked.wait(LIMIT_SECONDS)
    is_blind.clear()
    volume.publish_plan(next_generation(plan))
    then = heard.get(timeout=LIMIT_SECONDS)
    undo()

    assert isinstance(then, PublishedPlan)
    assert then.generation == 2


def test_an_undone_watch_has_no_thread_and_calls_nobody(volume: PodVolume, server: HostRoot, plan: PodPlan) -> None:
    volume.publish_nothing()
    heard: queue.Queue[Publication] = queue.Queue()
    undo = watch_plan(heard.put, folder=volume.folder, root=server, every_seconds=0.005)
    heard.get(timeout=LIMIT_SECONDS)

    undo()
    undo()

    assert "cpuplan-watch" not in [thread.name for thread in threading.enumerate()]
    volume.publish_plan(plan)
    assert heard.empty()


def test_a_watch_can_be_undone_by_its_own_callback(volume: PodVolume, server: HostRoot) -> None:
    volume.publish_nothing()
    undo_is_known, is_undone = threading.Event(), threading.Event()
    undos: list[Callable[[], None]] = []

    def end(_: Publication) -> None:
        assert undo_is_known.wait(LIMIT_SECONDS)
        undos[0]()
        is_undone.set()

    undos.append(watch_plan(end, folder=volume.folder, root=server, every_seconds=0.005))
    undo_is_known.set()

    assert is_undone.wait(LIMIT_SECONDS)


def test_a_callback_that_raises_is_reported_and_called_again(
    volume: PodVolume, server: HostRoot, plan: PodPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume.publish_nothing()
    heard: queue.Queue[Publication] = queue.Queue()
    reported: queue.Queue[threading.ExceptHookArgs] = queue.Queue()
    monkeypatch.setattr(threading, "excepthook", reported.put)

    def fail(found: Publication) -> None:
        heard.put(found)
        raise LookupError("the engine's own fault")

    undo = watch_plan(fail, folder=volume.folder, root=server, every_seconds=0.005)
    heard.get(timeout=LIMIT_SECONDS)
    volume.publish_plan(plan)
    second = heard.get(timeout=LIMIT_SECONDS)
    undo()

    assert isinstance(second, PublishedPlan)
    assert reported.get(timeout=LIMIT_SECONDS).exc_type is LookupError


def test_no_descriptor_stays_open_while_waiting(volume: PodVolume, server: HostRoot) -> None:
    volume.publish_nothing()
    open_files: list[list[str]] = []

    def look_around(_: float) -> None:
        targets = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        open_files.append([target for target in targets if str(volume.folder) in target])

    wait_for_plan(0.01, folder=volume.folder, root=server, pause=look_around)

    assert open_files
    assert not any(open_files)
