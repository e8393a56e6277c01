"""`cpuplan init`: the init container waits, tests, reports, and lets the pod start."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cpuplan.cli import selftest
from cpuplan.host.identity import read_boot_id
from cpuplan.host.sysfs import THIS_HOST
from cpuplan.model.podplan import PodPlan
from tests.cli import fakeselftest
from tests.cli.answers import Answer
from tests.cli.conftest import LIMIT_SECONDS, REPOSITORY
from tests.podvolume import POD_UID, PodVolume

Command = Callable[..., Answer]
SOURCES = f"{REPOSITORY / 'operator'}:{REPOSITORY}"

PASSED = ("pass ok: 14 checks in 2.1 s", {"verdict": "pass", "fault": "", "devices": []})
STUCK = (
    "stuck stream-parked: GPU-1 does not observe host stores",
    {"verdict": "stuck", "fault": "stream-parked", "devices": [{"uuid": "GPU-1"}, {"uuid": "GPU-2"}]},
)
FAILED = ("fail host-order: a reply was seen before its claim", {"verdict": "fail", "fault": "host-order"})
UNTESTED = ("untested no-driver: libcuda.so.1 was not found", {"verdict": "untested", "fault": "no-driver"})


NODE_FAILED_LINE = "fail device-wrap: device 5 at 0000:05:00.0: the stream went on with round 0 before it was released"
NODE_FAILED: dict[str, Any] = {
    "verdict": "fail",
    "fault": "device-wrap",
    "devices": [{"ordinal": i, "uuid": f"GPU-{i:032x}", "attributes": {"a": 1}} for i in range(8)],
    "environment": {"kernel": "6.1"},
    "parts": {
        f"device {i}": [
            {"name": f"check-{j}", "outcome": "pass", "seconds": 1.234, "figures": {"p50": [1.5] * 50}}
            if (i, j) != (5, 0)
            else {"name": "wrap", "outcome": "fail", "fault": "device-wrap", "text": "the stream went on"}
            for j in range(8)
        ]
        for i in range(8)
    },
}


class Start:
    """One start of an init container: its volume, its termination log and the self-test it finds."""

    def __init__(self, cpuplan: Command, volume: PodVolume, tmp_path: Path) -> None:
        self._cpuplan = cpuplan
        self.volume = volume
        self.termination_log = tmp_path / "termination-log"
        self.termination_log.touch()
        self.packages = tmp_path / "packages"

    def find(self, exit_code: int, said: tuple[str, dict[str, Any]]) -> Path:
        """Lets it find a self-test that ends so; returns where its calls are logged."""
        return fakeselftest.install(self.packages, exit_code, *said)

    def run(self, *words: object, wait_seconds: float = 0) -> Answer:
        places = ["--plan-dir", self.volume.folder, "--termination-log", self.termination_log]
        return self._cpuplan("init", *places, "--wait-seconds", wait_seconds, *words)

    @property
    def verdict(self) -> str:
        """The first line of the termination log."""
        return self.termination_log.read_text().splitlines()[0]

    @property
    def document(self) -> Any:
        """The small JSON object of the termination log."""
        return json.loads(self.termination_log.read_text().splitlines()[1])

    @property
    def details(self) -> Any:
        """The self-test's own JSON object in the termination log."""
        return json.loads(self.termination_log.read_text().splitlines()[2])


@pytest.fixture
def start(cpuplan: Command, volume: PodVolume, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    start = Start(cpuplan, volume, tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{start.packages}:{SOURCES}")
    handler = signal.getsignal(signal.SIGTERM)
    yield start
    signal.signal(signal.SIGTERM, handler)


def test_a_pod_with_its_plan_starts_with_the_verdict_reported(start: Start, plan_here: PodPlan) -> None:
    start.volume.publish_plan(plan_here)
    start.find(0, PASSED)

    answer = start.run()

    assert (answer.exit_code, answer.complaint) == (0, "")
    assert answer.output == start.termination_log.read_text() + "\n"
    assert start.verdict == "pass ok: 14 checks in 2.1 s"
    assert start.document | {"plan": None} == {
        "verdict": "pass",
        "fault": "",
        "bootID": read_boot_id(THIS_HOST),
        "podUID": POD_UID,
        "deviceUUIDs": [],
        "plan": None,
    }
    assert start.details == PASSED[1]
    plan = start.document["plan"]
    assert (plan["state"], plan["generation"], plan["status"]) == ("published", 1, "Pinned")


def test_a_pod_whose_plan_never_comes_starts_too(start: Start) -> None:
    start.volume.publish_nothing()
    start.find(0, PASSED)

    answer = start.run(wait_seconds=0.2)

    assert answer.exit_code == 0
    assert start.document["plan"]["state"] == "not-yet"
    assert start.document["plan"]["waitedSeconds"] >= 0.2


def test_a_plan_for_another_pod_is_waited_out_and_said(start: Start, plan_here: PodPlan) -> None:
    start.volume.publish(plan_here.to_json(), uid="another-uid")

    start.run("--selftest", "skip", wait_seconds=0.05)

    assert (start.document["plan"]["state"], start.document["podUID"]) == ("other-pod", "another-uid")


@pytest.mark.parametrize(
    ("exit_code", "said", "required_exit_code"),
    [(0, PASSED, 0), (1, FAILED, 1), (2, UNTESTED, 0), (3, STUCK, 3)],
    ids=["pass", "fail", "untested", "stuck"],
)
def test_only_a_required_self_test_that_fails_or_sticks_stops_the_pod(
    start: Start, exit_code: int, said: tuple[str, dict[str, Any]], required_exit_code: int
) -> None:
    start.find(exit_code, said)

    answers = [start.run("--selftest", how).exit_code for how in ("report", "device", "required")]

    assert answers == [0, 0, required_exit_code]
    assert (start.verdict, start.document["verdict"]) == (said[0], said[1]["verdict"])


def test_the_tested_devices_are_named(start: Start) -> None:
    start.find(3, STUCK)

    start.run("--selftest", "device")

    assert start.document["deviceUUIDs"] == ["GPU-1", "GPU-2"]
    assert start.document["fault"] == "stream-parked"


@pytest.mark.parametrize(("how", "part"), [("report", "host"), ("device", "all"), ("required", "all")])
def test_devices_are_tested_only_when_asked_for_and_the_termination_log_stays_ours(
    start: Start, how: str, part: str
) -> None:
    log = start.find(0, PASSED)

    start.run("--selftest", how)

    ((command, *options),) = fakeselftest.calls(log)
    assert command == "selftest"
    assert options[:2] == ["--part", part]
    assert options[-2:] == ["--termination-log", ""]


def test_skip_tests_nothing(start: Start) -> None:
    log = start.find(3, STUCK)

    answer = start.run("--selftest", "skip")

    assert (answer.exit_code, log.exists()) == (0, False)
    assert (start.document["verdict"], start.document["fault"]) == ("untested", "skipped")


def test_a_self_test_that_crashes_is_a_failure_with_its_last_words(start: Start) -> None:
    start.find(-11 & 0xFF, ("", {}))

    start.run()

    assert start.verdict.startswith("fail selftest-crashed: the self-test ended with exit code 245: ")


def test_a_verdict_too_large_for_the_kubelet_keeps_what_decided_and_standard_output_has_it_whole(start: Start) -> None:
    """Eight devices, one of them bad."""
    start.find(1, (NODE_FAILED_LINE, NODE_FAILED))

    answer = start.run("--selftest", "device")

    assert len(start.termination_log.read_bytes()) <= 4096
    assert start.document["deviceUUIDs"] == [f"GPU-{ordinal:032x}" for ordinal in range(8)]
    assert start.details["parts"]["device 5"][0] == NODE_FAILED["parts"]["device 5"][0]
    assert start.details["leftOut"]["passedFigures"] == 63
    assert [json.loads(line) for line in answer.output.splitlines()[1:]] == [start.document, NODE_FAILED]


def test_a_pod_of_many_containers_keeps_what_the_agent_reads(start: Start) -> None:
    """With ten containers the kubelet keeps the first 1,228 bytes of each message."""
    start.volume.publish("no plan " * 100, uid=POD_UID)
    start.find(1, (NODE_FAILED_LINE, NODE_FAILED))

    start.run("--selftest", "device")

    line, summary = start.termination_log.read_text().splitlines()[:2]
    assert line == NODE_FAILED_LINE
    assert len(f"{line}\n{summary}\n".encode()) <= 12288 // 10


def test_without_a_termination_log_standard_output_has_it(start: Start, tmp_path: Path) -> None:
    start.find(0, PASSED)

    answer = start.run("--termination-log", tmp_path / "none")

    assert (answer.exit_code, answer.output.splitlines()[0]) == (0, PASSED[0])
    assert not (tmp_path / "none").exists()


def test_an_unwritable_termination_log_does_not_stop_the_pod(start: Start, tmp_path: Path) -> None:
    start.find(0, PASSED)

    answer = start.run("--termination-log", tmp_path)

    assert answer.exit_code == 0
    assert answer.sentence == f"cpuplan init: {tmp_path} cannot be written: Is a directory"


def test_an_image_without_the_self_test_says_untested(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "find_spec", {"hostflag_native": None}.get)

    answer = start.run("--selftest", "required")

    assert answer.exit_code == 0
    assert start.verdict.startswith("untested not-installed: hostflag_native")


def test_a_self_test_that_cannot_be_started_does_not_stop_the_pod(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the pod may start no further process."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    answer = start.run("--selftest", "required")

    assert answer.exit_code == 0
    assert start.verdict == "untested not-started: the self-test could not be started: No such file or directory"


def test_a_pod_that_is_deleted_meanwhile_does_not_wait_for_its_kill(volume: PodVolume, tmp_path: Path) -> None:
    """As PID 1 of its container a process without a handler would ignore SIGTERM."""
    volume.publish_nothing()
    fakeselftest.install(tmp_path / "packages", 0, *PASSED, hangs=True)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "cpuplan", "init", "--plan-dir", volume.folder, "--wait-seconds", "600"],
        env={"PYTHONPATH": f"{tmp_path / 'packages'}:{SOURCES}"},
    )
    log = tmp_path / "packages" / "calls.jsonl"
    while not log.exists() and process.poll() is None:
        try:
            process.wait(0.02)
        except subprocess.TimeoutExpired:
            continue

    process.send_signal(signal.SIGTERM)

    assert process.wait(LIMIT_SECONDS) == 128 + signal.SIGTERM
    assert fakeselftest.running(tmp_path / "packages") == []
