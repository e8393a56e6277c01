"""What checks come to, and how the verdict is told."""

import json
import time

import pytest

from hostflag_native import StreamStuckError, StreamSyncError
from hostflag_native.selftest import Outcome, Verdict
from hostflag_native.selftest.process import read_verdict
from hostflag_native.selftest.verdict import Check, CheckFailedError, Checklist, UntestedError


def _verdict(*checks: Check, devices: int = 0) -> Verdict:
    found = [
        {"uuid": f"GPU-{i:032x}", "pciAddress": f"0000:{i:02x}:00.0", "attributes": {"a": 1}} for i in range(devices)
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


def test_a_check_that_is_cut_short_is_named() -> None:
    checklist = Checklist()
    checklist.run("host", "page", "default", lambda: checklist.cut_short("selftest-timeout", "did not end"))
    assert checklist.checks()[0].text == "host page: did not end"


@pytest.mark.parametrize("devices", [0, 1, 8, 100])
def test_the_termination_message_fits_what_the_kubelet_keeps(devices: int) -> None:
    """Its second line stays JSON, and says what was left out."""
    big = [_check(Outcome.PASS, figures={"samples": ["µ" * 40] * size}) for size in (1, 20, 40)]
    message = _verdict(*big, FAIL, devices=devices).termination_message()
    line, _, rest = message.partition("\n")
    assert len(message.encode()) <= 4096
    assert line.startswith("fail some-fault: ")
    document = json.loads(rest)
    assert document["verdict"] == "fail"
    assert "host/name" in document["leftOut"]


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
