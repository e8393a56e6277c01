"""Termination messages of the init container, whole and mutilated."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpuplan.agent.verdict import verdict_json


@pytest.mark.parametrize(
    ("message", "verdict", "fault"),
    [
        ("pass", "pass", ""),
        ("PASS: all checks", "pass", "all"),
        ("fail wrap-lost: the wrap was lost", "fail", "wrap-lost"),
        ('stuck no-store\n{"verdict":"stuck","fault":"no-store"}', "stuck", "no-store"),
        ('untested not-installed: x\n{"verdict":"untested","fault":"not-installed","cut', "untested", "not-installed"),
        ('pass\n{"verdict":"pass","fault":""}', "pass", ""),
    ],
)
def test_the_verdict_and_fault_come_from_the_json_else_from_the_first_line(
    message: str, verdict: str, fault: str
) -> None:
    value = json.loads(verdict_json(message, "uid", "boot") or "")
    assert (value["verdict"], value["fault"], value["podUID"], value["bootID"]) == (verdict, fault, "uid", "boot")


@pytest.mark.parametrize("message", ["", " ", "\n\n"])
def test_an_empty_message_is_no_verdict(message: str) -> None:
    assert verdict_json(message, "uid", "boot") is None


@given(st.text(), st.text())
def test_any_message_gives_a_small_value(first: str, rest: str) -> None:
    value = verdict_json(f"{first}\n{rest}", "uid", "boot")
    assert value is None or len(value.encode()) < 1024


def test_many_devices_are_cut() -> None:
    message = "pass\n" + json.dumps({"deviceUUIDs": ["GPU-" + "x" * 500] * 100})
    value = json.loads(verdict_json(message, "uid", "boot") or "")
    assert [len(uuid) for uuid in value["deviceUUIDs"]] == [64] * 8
