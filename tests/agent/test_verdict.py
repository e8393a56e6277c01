"""Termination messages of the init container, whole and mutilated."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpuplan.agent.verdict import verdict_json
from cpuplan.kube.annotations import HOSTFLAG_BYTES

POD_UID = "0b5dd6f8-4a4b-4d0e-8f3b-4d4d7c0f8a11"
DOCUMENTS = st.fixed_dictionaries(
    {"verdict": st.text(min_size=40), "fault": st.text(min_size=40), "deviceUUIDs": st.lists(st.text(max_size=60))}
)


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


@given(st.text(), st.text() | DOCUMENTS.map(json.dumps))
def test_any_message_gives_a_value_that_has_its_room_beside_the_plan(first: str, rest: str) -> None:
    value = verdict_json(f"{first}\n{rest}", POD_UID, POD_UID)
    assert value is None or len("cpuplan.dev/hostflag") + len(value.encode()) <= HOSTFLAG_BYTES


def test_many_devices_are_cut_to_the_room_there_is() -> None:
    uuids = [f"GPU-41b3359c-e721-56e5-8009-12e5797ed5{number:02}" for number in range(16)]
    text = verdict_json("pass\n" + json.dumps({"deviceUUIDs": uuids}), POD_UID, POD_UID) or ""
    assert json.loads(text)["deviceUUIDs"] == uuids[:8]


def test_what_is_no_code_or_id_never_reaches_the_annotation() -> None:
    message = "pass\n" + json.dumps({"deviceUUIDs": ["GPU-1", "<b>", 3, "x" * 500], "fault": "\u2028" * 9})
    value = json.loads(verdict_json(message, POD_UID, POD_UID) or "")
    assert (value["deviceUUIDs"], value["fault"]) == (["GPU-1"], "")
