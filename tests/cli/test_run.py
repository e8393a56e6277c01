"""`cpuplan run -- CMD`: pools sized, then the command in this process's place."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cpuplan.host.affinity import process_mask, usable_cpus
from cpuplan.model import reasons
from cpuplan.model.cpulist import format_cpu_list
from cpuplan.model.podplan import PodPlan
from tests.cli import fakeselftest
from tests.cli.answers import Answer
from tests.cli.conftest import LIMIT_SECONDS, REPOSITORY, SOURCES
from tests.podvolume import POD_UID, PodVolume
from tests.waiting import until

Command = Callable[..., Answer]
PRINT_THREADS = ["--", "sh", "-c", "echo $OMP_NUM_THREADS $GOMAXPROCS"]


@pytest.fixture
def plan_folder(volume: PodVolume, plan_here: PodPlan) -> Path:
    """A volume with the plan of two H100."""
    volume.publish_plan(plan_here)
    return volume.folder


def test_pools_are_sized_to_the_published_plan(
    cpuplan_process: Command, volume: PodVolume, plan_here: PodPlan, unlimited: dict[str, str]
) -> None:
    """24 usable CPUs, 5 pinned, two workers: 9 threads each."""
    volume.publish_plan(plan_here)

    answer = cpuplan_process("run", "--plan-dir", volume.folder, *PRINT_THREADS, **unlimited)

    assert (answer.exit_code, answer.output) == (0, "9 9\n")
    assert answer.sentence == (
        "cpuplan: 9 threads per pool (14 variables set) from plan generation 1 of container engine: "
        "24 usable CPUs, pinned 0,55-56,112,168"
    )


def test_without_a_plan_this_processes_own_quota_counts(cpuplan_process: Command, tmp_path: Path) -> None:
    answer = cpuplan_process("run", "--plan-dir", tmp_path, "--quiet", *PRINT_THREADS)

    assert (answer.output, answer.complaint) == (f"{usable_cpus()} {usable_cpus()}\n", "")


def test_what_the_user_has_set_stays(cpuplan_process: Command, tmp_path: Path) -> None:
    answer = cpuplan_process("run", "--threads", "5", "--plan-dir", tmp_path, *PRINT_THREADS, OMP_NUM_THREADS="3")

    assert answer.output == "3 5\n"


@pytest.mark.parametrize(("words", "threads"), [(["--processes", "4"], "4"), (["--threads", "7"], "7")])
def test_the_size_can_be_chosen(
    cpuplan_process: Command, plan_folder: Path, unlimited: dict[str, str], words: list[str], threads: str
) -> None:
    answer = cpuplan_process("run", *words, "--plan-dir", plan_folder, *PRINT_THREADS, **unlimited)

    assert answer.output == f"{threads} {threads}\n"


@pytest.mark.parametrize(
    ("command", "exit_code", "sentence"),
    [
        pytest.param(["sh", "-c", "exit 7"], 7, "", id="its own exit code"),
        pytest.param(
            ["/nowhere/at/all"], 127, "cpuplan run: cannot run /nowhere/at/all: it was not found", id="missing"
        ),
        pytest.param(["/etc/passwd"], 126, "cpuplan run: cannot run /etc/passwd: Permission denied", id="no program"),
    ],
)
def test_the_exit_code_is_the_commands_or_a_shells(
    cpuplan_process: Command, tmp_path: Path, command: list[str], exit_code: int, sentence: str
) -> None:
    answer = cpuplan_process("run", "--quiet", "--plan-dir", tmp_path, "--", *command)

    assert (answer.exit_code, answer.complaint.strip()) == (exit_code, sentence)


def test_a_script_without_its_interpreter_is_told_apart(cpuplan_process: Command, tmp_path: Path) -> None:
    script = tmp_path / "server"
    script.write_text("#!/nowhere/python9\n")
    script.chmod(0o755)

    answer = cpuplan_process("run", "--quiet", "--plan-dir", tmp_path, "--", script)

    assert answer.exit_code == 127
    assert answer.sentence.endswith("its interpreter (the first line of the script) was not found")


def test_words_of_the_command_are_its_own_also_where_they_look_like_ours(
    cpuplan_process: Command, tmp_path: Path
) -> None:
    answer = cpuplan_process("run", "--quiet", "--plan-dir", tmp_path, "echo", "--pin", "--", "-o", "json", "a  b")

    assert answer.output == "--pin -- -o json a  b\n"


@pytest.fixture
def in_its_place(tmp_path: Path) -> list[str]:
    return [sys.executable, "-m", "cpuplan", "run", "--quiet", "--plan-dir", str(tmp_path), "--"]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{REPOSITORY / 'operator'}:{REPOSITORY}"}


def test_the_command_is_the_process_and_gets_its_signals(in_its_place: list[str]) -> None:
    script = "trap 'echo got it; exit 9' TERM; echo $$; while :; do read -r line; done"
    process = subprocess.Popen(
        [*in_its_place, "sh", "-c", script],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process_id = int(process.stdout.readline())

    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate("a line, so that the read ends and the trap runs\n", timeout=LIMIT_SECONDS)

    assert process_id == process.pid
    assert (output, process.returncode) == ("got it\n", 9)


def test_the_command_does_not_inherit_pythons_ignored_signals(in_its_place: list[str]) -> None:
    done = subprocess.run(
        [*in_its_place, "grep", "SigIgn", "/proc/self/status"],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        restore_signals=True,
    )

    assert int(done.stdout.split()[1], 16) & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)) == 0


def on_this_machine(plan: PodPlan) -> PodPlan:
    """The plan with its step threads on the first CPU that the tests may use, and pools on the others."""
    name, engine = plan.containers[0]
    mask, first = process_mask(), min(process_mask())
    worker = replace(engine.workers[0], cpus=frozenset({first}))
    pinned = replace(engine, mask=mask, workers=(worker,), result=None, pool_cpus=mask - {first}, usable=len(mask))
    return replace(plan, containers=((name, replace(pinned, reason=reasons.PINNED)),))


ALLOWED = ["--", "sh", "-c", "grep Cpus_allowed_list /proc/self/status"]


@pytest.mark.skipif(len(process_mask()) < 2, reason="needs two CPUs: allow the tests at least two")
def test_pin_keeps_the_command_off_pinned_cpus(cpuplan_process: Command, volume: PodVolume, plan_here: PodPlan) -> None:
    volume.publish_plan(on_this_machine(plan_here))

    answer = cpuplan_process("run", "--pin", "--plan-dir", volume.folder, *ALLOWED)

    assert answer.output.split()[1] == format_cpu_list(process_mask() - {min(process_mask())})


def test_pin_without_pins_changes_nothing_and_says_so(cpuplan_process: Command, tmp_path: Path) -> None:
    answer = cpuplan_process("run", "--pin", "--plan-dir", tmp_path, *ALLOWED)

    assert answer.output.split()[1] == format_cpu_list(process_mask())
    assert "cpuplan: --pin changes nothing: no published plan: " in answer.complaint


def test_pin_on_cpus_that_are_not_there_changes_nothing_and_says_so(
    cpuplan_process: Command, volume: PodVolume, plan_here: PodPlan
) -> None:
    name, engine = plan_here.containers[0]
    gone = replace(engine, pool_cpus=frozenset({8000, 8001}))
    volume.publish_plan(replace(plan_here, containers=((name, gone),)))

    answer = cpuplan_process("run", "--pin", "--plan-dir", volume.folder, *ALLOWED)

    assert answer.output.split()[1] == format_cpu_list(process_mask())
    assert "cpuplan: --pin changes nothing: CPUs 8000-8001 were refused (Invalid argument)" in answer.complaint


@pytest.mark.parametrize(
    ("how", "exit_code", "expected"),
    [
        pytest.param("--selftest", 3, (0, "started\n"), id="stuck is reported"),
        pytest.param("--selftest=required", 0, (0, "started\n"), id="pass"),
        pytest.param("--selftest=required", 2, (0, "started\n"), id="untested"),
        pytest.param("--selftest=required", 1, (1, ""), id="fail stops a required start"),
        pytest.param("--selftest=required", 3, (3, ""), id="stuck stops a required start"),
    ],
)
def test_the_devices_are_tested_before_the_command(
    cpuplan_process: Command, tmp_path: Path, how: str, exit_code: int, expected: tuple[int, str]
) -> None:
    log = fakeselftest.install(tmp_path / "packages", exit_code, "the verdict line", {})
    path = f"{tmp_path / 'packages'}:{REPOSITORY / 'operator'}:{REPOSITORY}"

    answer = cpuplan_process("run", how, "--plan-dir", tmp_path, "--", "echo", "started", PYTHONPATH=path)

    assert (answer.exit_code, answer.output) == expected
    assert answer.complaint.startswith("cpuplan: self-test: the verdict line\n")
    assert fakeselftest.calls(log)[0][:3] == ["selftest", "--part", "device"]


@pytest.mark.parametrize(("how", "is_told"), [("--selftest=required", True), ("--selftest", False)])
def test_a_test_that_keeps_the_command_from_starting_is_told_to_kubernetes(
    cpuplan_process: Command, volume: PodVolume, tmp_path: Path, how: str, is_told: bool
) -> None:
    """Where the command starts, the termination log is its own."""
    volume.publish_nothing()
    said = {"verdict": "stuck", "fault": "device-stuck", "devices": [{"uuid": "GPU-1"}]}
    fakeselftest.install(tmp_path / "packages", 3, "stuck device-stuck: parked", said)
    path = f"{tmp_path / 'packages'}:{REPOSITORY / 'operator'}:{REPOSITORY}"
    log = tmp_path / "termination-log"
    log.touch()
    places = ["--plan-dir", volume.folder, "--termination-log", log]

    cpuplan_process("run", how, *places, "--", "true", PYTHONPATH=path)

    lines = log.read_text().splitlines()
    assert bool(lines) == is_told
    assert lines[:1] == ["stuck device-stuck: parked"] * is_told
    told = [json.loads(line) for line in lines[1:]]
    assert told[1:] == [said] * is_told
    assert [(each["podUID"], each["deviceUUIDs"]) for each in told[:1]] == [(POD_UID, ["GPU-1"])] * is_told


@pytest.mark.parametrize("what", ["self-test", "wait for the plan"])
def test_what_precedes_the_command_hears_sigterm(volume: PodVolume, tmp_path: Path, what: str) -> None:
    """As PID 1 of its container a process without a handler would ignore SIGTERM."""
    volume.publish_nothing()
    packages = tmp_path / "packages"
    log = fakeselftest.install(packages, 0, "pass ok: x", {}, hangs=True)
    words = ["--selftest"] if what == "self-test" else ["--wait-seconds", "600"]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "cpuplan", "run", *words, "--plan-dir", volume.folder, "--", "true"],
        env={"PYTHONPATH": f"{packages}:{SOURCES}"},
    )
    until(log.exists if what == "self-test" else lambda: _handles_sigterm(process.pid))

    process.send_signal(signal.SIGTERM)

    assert process.wait(LIMIT_SECONDS) == 128 + signal.SIGTERM
    assert fakeselftest.running(packages) == []


def _handles_sigterm(process_id: int) -> bool:
    status = Path(f"/proc/{process_id}/status").read_text(encoding="utf-8")
    (caught,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def test_other_binders_are_named(cpuplan_process: Command, tmp_path: Path) -> None:
    answer = cpuplan_process("run", "--plan-dir", tmp_path, "--", "true", OMP_PROC_BIND="spread")

    assert "cpuplan: warning: OMP_PROC_BIND=spread makes OpenMP bind threads; to turn it off: OMP_PROC_BIND=false" in (
        answer.complaint.splitlines()
    )
