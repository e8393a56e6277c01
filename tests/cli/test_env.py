"""`cpuplan env`: the plan as variables and arguments."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cpuplan.host.affinity import process_mask
from cpuplan.host.root import HostRoot
from cpuplan.inprocess import published
from cpuplan.model import reasons
from cpuplan.model.cpulist import format_cpu_list
from cpuplan.model.podplan import PodPlan
from cpuplan.model.pools import THREAD_VARIABLES
from tests.cli.answers import Answer
from tests.podvolume import PodVolume

Command = Callable[..., Answer]


@pytest.fixture
def env(cpuplan: Command, volume: PodVolume, plan_here: PodPlan) -> Command:
    """`cpuplan env` in the pod whose plan has two workers, on GPUs that this machine does not have."""
    volume.publish_plan(plan_here)
    return lambda *words: cpuplan("env", "--plan-dir", volume.folder, *words)


def test_a_shell_can_take_the_variables(env: Command) -> None:
    answer = env()

    done = subprocess.run(
        ["sh", "-ec", f"{answer.output}echo $OMP_NUM_THREADS $TOKIO_WORKER_THREADS"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "9 9\n"
    assert len(answer.output.splitlines()) == len(THREAD_VARIABLES)


def test_what_is_set_already_is_not_printed(env: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")

    answer = env()

    assert "OMP_NUM_THREADS" not in answer.output
    assert "export MKL_NUM_THREADS=9\n" in answer.output


@pytest.mark.parametrize(
    ("quota", "threads", "usable"), [(12.5, 3, 12), (24.0, 9, 24), (48.0, 9, 24), (None, 9, 24), (0.5, 1, 1)]
)
def test_a_quota_that_is_smaller_by_now_than_the_plans_counts(
    env: Command, monkeypatch: pytest.MonkeyPatch, quota: float | None, threads: int, usable: int
) -> None:
    """As in a container that restarted with a smaller limit, before its plan has followed."""
    monkeypatch.setattr(published, "visible_quota", lambda _: quota)

    answer = env()

    assert f"export OMP_NUM_THREADS={threads}\n" in answer.output
    warning = (
        f"cpuplan: warning: the quota allows {usable} CPU{'s' if usable > 1 else ''} by now, fewer than the plan's 24"
    )
    assert (warning in answer.complaint) == (usable < 24)


def test_openmp_gets_one_place_off_the_pinned_cpus(env: Command) -> None:
    """Pinned are 0,55-56,112,168 of 0-223."""
    assert env("-o", "omp").output.splitlines() == [
        "export OMP_NUM_THREADS=9",
        "export OMP_PLACES='{1:54,57:55,113:54,169:55}'",
        "export OMP_PROC_BIND=true",
        "export CPUPLAN_POOL_CPUS=1-54,57-111,113-166,169-223",
    ]


def test_what_env_has_printed_is_not_called_foreign(env: Command, cpuplan_process: Command, volume: PodVolume) -> None:
    exports = dict(line.removeprefix("export ").split("=", 1) for line in env("-o", "omp").output.splitlines())
    variables = {name: value.strip("'") for name, value in exports.items()}

    answer = cpuplan_process("run", "--plan-dir", volume.folder, "--", "true", **variables)

    assert answer.exit_code == 0
    assert "OMP_PROC_BIND" not in answer.complaint


def test_taskset_gets_the_pools_cpus(env: Command) -> None:
    assert env("-o", "taskset").output == "--cpu-list 1-54,57-111,113-166,169-223\n"


def test_taskset_always_gets_a_list(cpuplan: Command, volume: PodVolume, plan_here: PodPlan, tmp_path: Path) -> None:
    volume.publish_plan(unpinned(plan_here))

    assert cpuplan("env", "--plan-dir", volume.folder, "-o", "taskset").output == "--cpu-list 0-223\n"
    own = cpuplan("env", "--plan-dir", tmp_path, "-o", "taskset")
    assert own.output == f"--cpu-list {format_cpu_list(process_mask())}\n"
    assert own.sentence.startswith("cpuplan: this process's own mask and quota (no published plan): ")


@pytest.fixture
def on_the_server(monkeypatch: pytest.MonkeyPatch, server: HostRoot) -> None:
    """The command sees the sysfs of the machine that the plan was made for."""
    monkeypatch.setattr("cpuplan.cli.env.THIS_HOST", server)


@pytest.mark.usefixtures("on_the_server")
def test_each_program_gets_its_numa_binding(env: Command) -> None:
    assert env("-o", "vllm").output == (
        "--numa-bind --numa-bind-nodes 0 1 --numa-bind-cpus 0-54,112-166 56-111,168-223\n"
    )
    assert env("-o", "sglang").output == "--numa-node 0 1\n"
    answer = env("-o", "torchrun")
    assert (answer.output, answer.complaint) == ("--nproc-per-node=2 --numa-binding=node\n", "")


@pytest.mark.parametrize(("program", "output"), [("vllm", ""), ("sglang", ""), ("torchrun", "--nproc-per-node=2")])
def test_a_numa_binding_that_is_left_out_is_said(env: Command, program: str, output: str) -> None:
    """The GPUs of the plan are not in the sysfs of the machine that runs the tests."""
    answer = env("-o", program)

    assert answer.output == f"{output}\n"
    assert answer.sentence == "cpuplan: no NUMA binding: sysfs has no 0000:1b:00.0; sysfs has no 0000:9d:00.0"


def test_a_plan_without_devices_says_that_there_are_none(
    cpuplan: Command, volume: PodVolume, plan_here: PodPlan
) -> None:
    name, engine = plan_here.containers[0]
    workers = tuple(replace(worker, address=None) for worker in engine.workers)
    volume.publish_plan(replace(plan_here, containers=((name, replace(engine, workers=workers)),)))

    answer = cpuplan("env", "--plan-dir", volume.folder, "-o", "vllm")

    assert (answer.output, answer.sentence) == ("\n", "cpuplan: no arguments: no worker of the plan has a device")


def test_the_json_has_the_budget_and_the_origin(env: Command) -> None:
    shown = env("-o", "json").document

    assert (shown["origin"], shown["threads"], shown["notPublished"]) == (
        "plan generation 1 of container engine",
        9,
        None,
    )
    assert shown["budget"] == {
        "usable": 24,
        "pinned": 5,
        "preprocess": 4,
        "encode": 16,
        "copy": 18,
        "remains": -3,
        "needed": 6,
        "shortage": None,
    }
    assert [(worker["address"], worker["doubt"]) for worker in shown["workers"]] == [
        ("0000:1b:00.0", "sysfs has no 0000:1b:00.0"),
        ("0000:9d:00.0", "sysfs has no 0000:9d:00.0"),
    ]


def test_without_a_plan_there_are_variables_but_no_arguments(cpuplan: Command, tmp_path: Path) -> None:
    words = ["env", "--plan-dir", tmp_path]

    exports = cpuplan(*words)
    assert exports.output.startswith("export OMP_NUM_THREADS=")
    assert exports.sentence.startswith("cpuplan: this process's own mask and quota (no published plan): ")
    answer = cpuplan(*words, "-o", "vllm")
    assert (answer.exit_code, answer.output) == (0, "\n")
    assert answer.sentence == (
        f"cpuplan: no arguments: no published plan: {tmp_path}/plan cannot be read: this container has no plan volume; "
        "either it is not the planned container of its pod (cpuplan.dev/container names one), or the pod was created "
        "without step_thread_core: create it anew with that"
    )
    assert cpuplan(*words, "-o", "json").document["notPublished"] == "no-volume"


def test_a_quota_too_small_for_the_workers_is_said(cpuplan: Command, volume: PodVolume, plan_here: PodPlan) -> None:
    volume.publish_plan(small_quota(plan_here))

    answer = cpuplan("env", "--plan-dir", volume.folder)

    assert answer.sentence.startswith("cpuplan: warning: 3 usable CPUs cannot serve 2 workers: ")


def small_quota(plan: PodPlan) -> PodPlan:
    return PodPlan.from_json(plan.to_json().replace('"quota":24.0,"usable":24', '"quota":3.0,"usable":3'))


def unpinned(plan: PodPlan) -> PodPlan:
    """The same pod with a plan that pins nothing."""
    name, engine = plan.containers[0]
    workers = tuple(replace(worker, cpus=frozenset()) for worker in engine.workers)
    bare = replace(engine, workers=workers, result=None, pool_cpus=engine.mask, reason=reasons.WOULD_PIN_ALL)
    return replace(plan, containers=((name, bare),))
