"""What `cpuplan` makes of what the self-test's process said."""

from __future__ import annotations

import pytest

from cpuplan.cli.selftest import Outcome, read_report


@pytest.mark.parametrize(
    ("exit_code", "output", "complaint", "last_words"),
    [
        (0, "pass ok: fine\nnot json", "", "it said nothing"),
        (0, "pass ok: fine\n[1]", "", "it said nothing"),
        (0, "pass ok: fine", "", "it said nothing"),
        (0, "", "", "it said nothing"),
        (64, "", "usage: …\nselftest: invalid choice: 'x'", "selftest: invalid choice: 'x'"),
        (1, "", "Traceback …\nMemoryError", "MemoryError"),
        (-9, 'pass ok: fine\n{"verdict":"pass"}', "", "it said nothing"),
    ],
)
def test_a_self_test_without_a_verdict_and_its_object_is_a_failure(
    exit_code: int, output: str, complaint: str, last_words: str
) -> None:
    report = read_report(exit_code, output, complaint)
    assert (report.outcome, report.fault) == (Outcome.FAIL, "selftest-crashed")
    assert report.line == (f"fail selftest-crashed: the self-test ended with exit code {exit_code}: {last_words}")


def test_its_line_and_its_object_are_the_report() -> None:
    report = read_report(3, 'stuck device-stuck: x\n{"fault": "device-stuck", "devices": [{"uuid": "GPU-1"}]}', "noise")
    assert (report.outcome, report.fault, report.line) == (Outcome.STUCK, "device-stuck", "stuck device-stuck: x")
    assert report.device_uuids == ["GPU-1"]
