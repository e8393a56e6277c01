"""`cpuplan verify`: the plan against where threads really may run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cpuplan.host.affinity import process_mask
from cpuplan.host.root import HostRoot
from cpuplan.model import reasons
from cpuplan.model.cpulist import parse_cpu_list
from cpuplan.model.podplan import PodPlan
from cpuplan.model.withheld import Withheld, WithheldFor
from tests.cli.answers import Answer
from tests.inprocess.threads import waiting_thread
from tests.machines import write_machine
from tests.podvolume import PodVolume, plan_of_pod

Command = Callable[..., Answer]
SERVER = "h100-server"


class Container:
    """The /proc that a container with one planned server shows, written by hand."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc

    def thread(self, process_id: int, thread_id: int, name: str, cpus: str) -> None:
        task = self.proc / str(process_id) / "task" / str(thread_id)
        task.mkdir(parents=True)
        (task / "comm").write_text(f"{name}\n")
        (task / "status").write_text(f"Name:\t{name}\nCpus_allowed:\tff\nCpus_allowed_list:\t{cpus}\n")
        (self.proc / str(process_id) / "cgroup").write_text((self.proc / "self" / "cgroup").read_text())


@pytest.fixture
def container(tmp_path: Path) -> Container:
    """A server whose plan pins 0,112 (worker 0), 56,168 (worker 1) and 55 (results)."""
    return Container(write_machine(SERVER, tmp_path / "host").proc)


@pytest.fixture
def verify(cpuplan: Command, container: Container, volume: PodVolume) -> Command:
    volume.publish_plan(plan_of_pod(SERVER, HostRoot.at(container.proc.parent), gpus=(0, 4)))
    return lambda *words: cpuplan("verify", "--plan-dir", volume.folder, "--proc-root", container.proc, *words)


def apply_plan(container: Container) -> None:
    container.thread(1, 1, "server", "0-223")
    container.thread(1, 5, "results", "55")
    container.thread(7, 7, "main", "0,112")
    container.thread(7, 9, "gpu", "112")
    container.thread(7, 10, "pool-1", "1-54,57-111")
    container.thread(7, 11, "pool-2", "1-54,57-111")
    container.thread(8, 8, "main", "56,168")


def test_an_applied_plan_is_told_with_every_threads_place(container: Container, verify: Command) -> None:
    apply_plan(container)

    answer = verify()

    assert (answer.exit_code, answer.facts["verdict"]) == (0, "applied")
    assert [line.split() for line in answer.output.split("Threads\n")[1].splitlines()[1:]] == [
        ["1", "floating", "0-223", "1", "server"],
        ["1", "result", "55", "1", "results"],
        ["7", "step", "of", "worker", "0", "0,112", "1", "main"],
        ["7", "step", "of", "worker", "0", "112", "1", "gpu"],
        ["7", "pool", "1-54,57-111", "2", "pool-1,", "pool-2"],
        ["8", "step", "of", "worker", "1", "56,168", "1", "main"],
    ]


@pytest.mark.parametrize(("cpus", "exit_code"), [("0-7", 0), ("2-7", 0), ("0-8", 1)])
def test_unpinned_threads_run_on_withheld_cpus_and_a_plan_is_applied_all_the_same(
    container: Container, verify: Command, volume: PodVolume, cpus: str, exit_code: int
) -> None:
    """Such as those of agent.reservedCpus: the cpuset has them, the mask does not."""
    plan = plan_of_pod(SERVER, HostRoot.at(container.proc.parent), gpus=(0,))
    ((name, engine),) = plan.containers
    withheld = (Withheld(WithheldFor.RESERVED, parse_cpu_list("0-1")),)
    pins = (replace(engine.workers[0], cpus=frozenset({2, 6})),)
    masked = replace(engine, mask=parse_cpu_list("2-7"), workers=pins, result=7, withheld=withheld)
    volume.publish_plan(replace(plan, containers=((name, masked),)))
    container.thread(1, 1, "server", cpus)
    container.thread(1, 2, "results", "7")
    container.thread(7, 7, "main", "2,6")

    answer = verify()

    assert (answer.exit_code, answer.facts["withheld"]) == (exit_code, "0-1 (reserved)")
    assert json.loads(verify("-o", "json").output)["withheld"] == {"reserved": "0-1"}
    strays = "process 1 may run on CPUs 8, which are outside the plan's mask (2-7; withheld 0-1 (reserved))"
    assert (strays in answer.output) == (exit_code == 1)


def test_a_plan_that_nobody_applies_fails_and_says_what_is_missing(container: Container, verify: Command) -> None:
    container.thread(1, 1, "server", "0-223")

    answer = verify()

    assert (answer.exit_code, answer.facts["verdict"]) == (1, "not applied")
    assert [line.partition("  ")[2].strip() for line in answer.output.splitlines() if "no thread" in line] == [
        "no thread is pinned to CPUs 0,112, the step threads of worker 0",
        "no thread is pinned to CPUs 56,168, the step threads of worker 1",
        "no thread is pinned to CPU 55, the result threads",
    ]


def test_one_missing_worker_is_enough_to_fail(container: Container, verify: Command) -> None:
    apply_plan(container)

    answer = verify("--pid", "1", "--pid", "7", "-o", "json")

    assert answer.exit_code == 1
    assert answer.document["missing"] == ["no thread is pinned to CPUs 56,168, the step threads of worker 1"]


def test_a_cpuset_that_has_changed_since_is_said(container: Container, verify: Command) -> None:
    apply_plan(container)
    container.thread(30, 30, "stray", "220-230")

    answer = verify("-o", "json")

    assert answer.exit_code == 1
    assert answer.document["outside"] == [
        "process 30 may run on CPUs 224-230, which are outside the plan's mask (0-223): its cpuset has changed since"
    ]


def test_processes_of_the_pods_other_containers_are_left_out_unless_asked_for(
    container: Container, verify: Command
) -> None:
    apply_plan(container)
    container.thread(40, 40, "sidecar", "300")
    (container.proc / "40" / "cgroup").write_text("0::/../another-container\n")

    assert verify().exit_code == 0
    assert verify("--all").exit_code == 1


def test_the_json_lists_every_thread(container: Container, verify: Command) -> None:
    apply_plan(container)

    threads = verify("-o", "json").document["threads"]

    assert len(threads) == 7
    assert threads[3] == {
        "processId": 7,
        "threadId": 9,
        "name": "gpu",
        "cpus": "112",
        "place": "step",
        "worker": 0,
    }


def test_a_process_that_is_not_there_is_one_sentence(container: Container, verify: Command) -> None:
    answer = verify("--pid", "4711")

    assert answer.exit_code == 1
    assert answer.sentence == f"cpuplan verify: no such process: 4711 (in {container.proc})"


def test_a_plan_that_pins_nothing_is_applied_by_doing_nothing(
    container: Container, verify: Command, volume: PodVolume
) -> None:
    volume.publish_plan(plan_of_pod(SERVER, HostRoot.at(container.proc.parent), setting="off"))
    container.thread(1, 1, "server", "0-223")

    answer = verify()

    assert (answer.exit_code, answer.facts["verdict"]) == (0, "nothing to apply: step_thread_core off")


@pytest.fixture
def thread_id() -> Iterator[int]:
    with waiting_thread() as found:
        yield found


@pytest.mark.skipif(len(process_mask()) < 2, reason="needs two CPUs: allow the tests at least two")
def test_real_threads_of_this_process_are_found_where_they_are_pinned(
    cpuplan: Command, volume: PodVolume, plan_here: PodPlan, thread_id: int
) -> None:
    name, engine = plan_here.containers[0]
    first = min(process_mask())
    worker = replace(engine.workers[0], cpus=frozenset({first}))
    pinned = replace(engine, mask=process_mask(), workers=(worker,), result=None, reason=reasons.PINNED)
    volume.publish_plan(replace(plan_here, containers=((name, pinned),)))
    words = ["verify", "--plan-dir", volume.folder, "--pid", os.getpid(), "-o", "json"]

    before = cpuplan(*words)
    os.sched_setaffinity(thread_id, {first})
    after = cpuplan(*words)

    assert (before.exit_code, after.exit_code) == (1, 0)
    assert [t["threadId"] for t in after.document["threads"] if t["place"] == "step"] == [thread_id]
