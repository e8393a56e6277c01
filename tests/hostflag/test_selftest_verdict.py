"""What checks come to, and how the verdict is told."""

import json
import os
import time

import pytest

from hostflag_native import StreamStuckError, StreamSyncError
from hostflag_native.selftest import Outcome, Verdict
from hostflag_native.selftest.journal import DEVICE, ENDED, Journal, teller
from hostflag_native.selftest.process import read_verdict
from hostflag_native.selftest.verdict import (
    RUNNING,
    Check,
    CheckFailedError,
    Checklist,
    UntestedError,
    interrupted,
)


def _verdict(*checks: Check, devices: int = 0) -> Verdict:
    found = [
        {"ordinal": i, "uuid": f"GPU-{i:032x}", "pciAddress": f"0000:{i:02x}:00.0", "attributes": {"a": 1}}
        for i in range(devices)
    ]
    return Verdict.of(checks, time.monotonic(), {"kernel": "6.1"}, found)


def _check(outcome: Outcome, fault: str = "", **more: object) -> Check:
    return Check("host", "name", outcome, fault, f"text of {fault}" if fault else "", **more)  # type: ignore[arg-type]


PASS, FAIL = _check(Outcome.PASS), _check(Outcome.FAIL, "some-fault")
UNTESTED, STUCK = _check(Outcome.UNTESTED, "no-device"), _check(Outcome.STUCK, "device-stuck")


@pytest.mark.parametrize(
    ("checks", "outcome", "exit_code", "fault"),
    [
        ((PASS,), Outcome.PASS, 0, ""),
        ((PASS, UNTESTED), Outcome.UNTESTED, 2, "no-device"),
        ((UNTESTED, FAIL, PASS), Outcome.FAIL, 1, "some-fault"),
        ((FAIL, STUCK, UNTESTED), Outcome.STUCK, 3, "device-stuck"),
        ((), Outcome.UNTESTED, 2, "nothing-tested"),
    ],
)
def test_the_worst_check_wins(checks: tuple[Check, ...], outcome: Outcome, exit_code: int, fault: str) -> None:
    verdict = _verdict(*checks)
    assert (verdict.outcome, verdict.exit_code, verdict.fault) == (outcome, exit_code, fault)
    assert (verdict.details["verdict"], verdict.details["exitCode"]) == (str(outcome), exit_code)


def test_the_first_80_characters_hold_the_verdict_and_the_fault_code() -> None:
    verdict = _verdict(Check("host", "name", Outcome.FAIL, "device-not-released", "a\nlong text " * 100))
    assert verdict.line[:80].startswith("fail device-not-released: a long text a long text")
    assert "\n" not in verdict.line
    assert len(verdict.line) == 300


def test_a_pass_has_a_code_too() -> None:
    assert _verdict(PASS).line.startswith("pass ok: 1 checks in ")


@pytest.mark.parametrize(
    ("raised", "outcome", "fault"),
    [
        (CheckFailedError("its-own", "x"), Outcome.FAIL, "its-own"),
        (UntestedError("no-driver", "x"), Outcome.UNTESTED, "no-driver"),
        (StreamStuckError("x"), Outcome.STUCK, "device-stuck"),
        (StreamSyncError("x"), Outcome.FAIL, "default"),
        (ZeroDivisionError("x"), Outcome.FAIL, "default"),
        (OSError(28, "No space left on device"), Outcome.FAIL, "default"),
    ],
)
def test_whatever_a_check_raises_is_a_finding(raised: Exception, outcome: Outcome, fault: str) -> None:
    def check() -> None:
        raise raised

    checklist = Checklist()
    assert checklist.run("device 0", "name", "default", check) is False
    (done,) = checklist.checks()
    assert (done.outcome, done.fault) == (outcome, fault)


@pytest.mark.parametrize(
    ("running", "text"),
    [
        (("host", "page"), "host page: did not end"),
        (("device", "driver"), "device driver: did not end"),
        (("device 7", "wrap"), "wrap: did not end"),
        (None, "test start: did not end"),
    ],
)
def test_a_check_that_did_not_end_by_itself_is_named(running: tuple[str, str] | None, text: str) -> None:
    assert interrupted(running, Outcome.FAIL, "selftest-timeout", "did not end").text == text


@pytest.mark.parametrize(
    ("check", "line"),
    [
        (Check("device 3", "wrap", Outcome.FAIL, "device-wrap", "x"), "fail device-wrap: device 3 at 0000:03:00.0: x"),
        (Check("device 9", "identity", Outcome.FAIL, "device-identity", "x"), "fail device-identity: device 9: x"),
        (Check("device", "driver", Outcome.FAIL, "device-init", "x"), "fail device-init: x"),
        (Check("host", "page", Outcome.FAIL, "host-page", "x"), "fail host-page: x"),
    ],
)
def test_the_line_says_which_device(check: Check, line: str) -> None:
    assert _verdict(PASS, check, devices=8).line == line


def test_what_is_told_of_a_test_gives_its_checks_and_devices_back() -> None:
    """In whatever pieces it arrives."""
    journal = Journal()
    receiver, sender = os.pipe()
    tell = teller(sender)
    checklist = Checklist(tell)
    checklist.run("host", "page", "host-page", lambda: {"µ": [1.5]})
    checklist.run("device 0", "wrap", "device-wrap", lambda: {"x": 1 // 0})
    tell(DEVICE, {"ordinal": 0})
    tell(RUNNING, ("device 0", "rescue"))
    for byte in os.read(receiver, 65536):
        journal.take(bytes([byte]))
    assert tuple(journal.checks) == checklist.checks()
    assert (journal.devices, journal.running, journal.has_ended) == ([{"ordinal": 0}], ("device 0", "rescue"), False)
    tell(ENDED, None)
    journal.take(os.read(receiver, 65536))
    assert journal.has_ended


# As large as the self-test's own: figures of latency 1 KB, attributes 300 bytes, an environment 400.
FIGURES = {"wordsOnly": {"p50": 1.234} | {f"p{i}": 1.234 for i in range(50)}}
CHECKS = ("identity", "set-up", "park-and-go", "wrap", "fail-ahead", "rescue", "latency", "tear-down")


def _node(devices: int, *faulty: Check) -> Verdict:
    """A whole self-test: the host's checks, and eight of each device, but for what is given instead."""
    checks = [Check("host", f"check-{i}", Outcome.PASS, figures=FIGURES if i == 13 else {}) for i in range(14)]
    replaced = {(check.part, check.name): check for check in faulty}
    for ordinal in range(devices):
        for name in CHECKS:
            passed = Check(f"device {ordinal}", name, Outcome.PASS, figures=FIGURES if name == "latency" else {})
            checks.append(replaced.get((passed.part, name), passed))
    found = [
        {
            "ordinal": ordinal,
            "name": "NVIDIA H100 80GB HBM3",
            "uuid": f"GPU-{ordinal:032x}",
            "pciAddress": f"0000:{ordinal:02x}:00.0",
            "mig": False,
            "attributes": dict.fromkeys(("integrated", "canMapHostMemory", "computeCapabilityMajor"), 1),
        }
        for ordinal in range(devices)
    ]
    return Verdict.of(tuple(checks), time.monotonic(), {"kernel": "6.1", "cpusAllowed": list(range(64))}, found)


BROKEN = Check("device 5", "wrap", Outcome.FAIL, "device-wrap", "x" * 900, figures=FIGURES)
ALSO_BROKEN = Check("device 2", "rescue", Outcome.UNTESTED, "other", "y" * 900, figures=FIGURES)


@pytest.mark.parametrize("limit_bytes", [4096, 3072, 2048])
@pytest.mark.parametrize("devices", [6, 8, 16, 64])
def test_the_termination_message_fits_and_never_loses_the_check_that_decided(devices: int, limit_bytes: int) -> None:
    message = _node(devices, BROKEN, ALSO_BROKEN).termination_message(limit_bytes)
    line, _, rest = message.partition("\n")
    assert len(message.encode()) <= limit_bytes
    assert line.startswith("fail device-wrap: device 5 at 0000:05:00.0: xxx")
    document = json.loads(rest)
    assert (document["verdict"], document["fault"]) == ("fail", "device-wrap")
    (decided,) = document["parts"]["device 5"]
    assert (decided["name"], decided["outcome"], decided["text"][:3]) == ("wrap", "fail", "xxx")
    assert document["leftOut"]["passedChecks"] > 0


@pytest.mark.parametrize(
    ("devices", "left_out"),
    [(0, []), (1, []), (2, ["passedFigures"]), (8, ["passedFigures", "passedChecks"])],
)
def test_what_says_least_is_left_out_first(devices: int, left_out: list[str]) -> None:
    document = json.loads(_node(devices).termination_message().partition("\n")[2])
    assert list(document.get("leftOut", {})) == left_out
    assert [device["uuid"] for device in document["devices"]] == [f"GPU-{i:032x}" for i in range(devices)]


def test_every_device_stays_named_where_only_the_check_that_decided_and_they_fit() -> None:
    document = json.loads(_node(8, BROKEN, ALSO_BROKEN).termination_message(3600).partition("\n")[2])
    assert len(document["devices"]) == 8
    assert "attributes" not in document["devices"][0]


def test_a_small_verdict_goes_to_the_termination_log_whole() -> None:
    verdict = _verdict(PASS, devices=1)
    assert json.loads(verdict.termination_message().partition("\n")[2]) == verdict.details
    assert verdict.device_uuids == ("GPU-" + "0" * 32,)


@pytest.mark.parametrize(
    ("exit_code", "output", "complaint", "line"),
    [
        (-9, "", "", "fail selftest-crashed: the self-test ended with exit code -9: it said nothing"),
        (
            1,
            "Traceback\n",
            "x\nImportError: y",
            "fail selftest-crashed: the self-test ended with exit code 1: ImportError: y",
        ),
        (0, "pass ok: fine\n[1]", "", "fail selftest-crashed: the self-test ended with exit code 0: it said nothing"),
    ],
)
def test_a_process_that_gives_no_verdict_is_a_failure(exit_code: int, output: str, complaint: str, line: str) -> None:
    verdict = read_verdict(exit_code, output, complaint)
    assert (verdict.outcome, verdict.fault, verdict.line) == (Outcome.FAIL, "selftest-crashed", line)
