"""Termination messages of the init container, whole and mutilated."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpuplan.agent.verdict import hostflag_annotation
from cpuplan.cli.selftest import Outcome, SelfTestReport
from cpuplan.cli.terminationlog import TerminationMessage
from cpuplan.kube.annotations import HOSTFLAG, HOSTFLAG_BYTES
from cpuplan.kube.pods import Pod, parse_pod

POD_UID = "0b5dd6f8-4a4b-4d0e-8f3b-4d4d7c0f8a11"
DOCUMENTS = st.fixed_dictionaries(
    {"verdict": st.text(min_size=40), "fault": st.text(min_size=40), "deviceUUIDs": st.lists(st.text(max_size=60))}
)


def _pod(
    init: dict[str, object],
    engine: dict[str, object] | None = None,
    *,
    is_deleting: bool = False,
    standing: str | None = None,
) -> Pod:
    """A pod whose init container ended so, and whose engine's status is given."""
    deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if is_deleting else {}
    annotations = {} if standing is None else {HOSTFLAG: standing}
    return parse_pod(
        {
            "metadata": {"namespace": "demo", "name": "llm-0", "uid": POD_UID, "annotations": annotations, **deleted},
            "spec": {"initContainers": [{"name": "cpuplan"}], "containers": [{"name": "engine"}]},
            "status": {
                "initContainerStatuses": [{"name": "cpuplan", "state": {"terminated": init}}],
                "containerStatuses": [{"name": "engine", **(engine or {})}],
            },
        }
    )


def _annotation(message: str) -> str | None:
    """What the annotation says of an init container that ended well with this termination message."""
    return hostflag_annotation(_pod({"exitCode": 0, "message": message}), "boot")


@pytest.mark.parametrize(
    ("message", "verdict", "fault"),
    [
        ("pass", "pass", ""),
        ("PASS: all checks", "pass", ""),
        ("pass ok: 14 checks in 2.1 s", "pass", ""),
        ("fail wrap-lost: the wrap was lost", "fail", "wrap-lost"),
        ('stuck no-store\n{"verdict":"stuck","fault":"no-store"}', "stuck", "no-store"),
        ('untested not-installed: x\n{"verdict":"untested","fault":"not-installed","cut', "untested", "not-installed"),
        ('pass\n{"verdict":"pass","fault":""}', "pass", ""),
        ('fail a-fault: x\n{"verdict":"odd","fault":"other"}', "fail", "a-fault"),
        ("Traceback (most recent call last):\n  File", "fail", "init-crashed"),
        ("exec /usr/bin/cpuplan: no such file or directory", "fail", "init-crashed"),
        ("cpuplan init: error", "fail", "init-crashed"),
        ("[\u2028]", "fail", "init-crashed"),
        ('x\n{"verdict":"stuck","fault":"device-stuck"}', "stuck", "device-stuck"),
    ],
)
def test_the_verdict_and_fault_come_from_the_json_else_from_the_first_line(
    message: str, verdict: str, fault: str
) -> None:
    value = json.loads(_annotation(message) or "")
    assert (value["verdict"], value["fault"], value["podUID"], value["bootID"]) == (verdict, fault, POD_UID, "boot")


def _message(outcome: Outcome, fault: str, line: str) -> str:
    """As `cpuplan init` writes it on a node with eight devices."""
    devices = [{"ordinal": i, "uuid": f"GPU-41b3359c-e721-56e5-8009-12e5797ed5{i:02}"} for i in range(8)]
    details = {"verdict": str(outcome), "fault": fault, "devices": devices, "environment": {"x": "y" * 9000}}
    report = SelfTestReport(outcome, fault, line, details)
    plan = {"state": "not-yet", "why": "w" * 160, "waitedSeconds": 15.001}
    return TerminationMessage.of(report, Path("/nowhere"), plan=plan).fitting()


@pytest.mark.parametrize(
    ("outcome", "fault", "line", "devices"),
    [
        (Outcome.PASS, "", "pass ok: 70 checks in 12.1 s", 8),
        (Outcome.STUCK, "device-stuck", "stuck device-stuck: device 5 at 0000:05:00.0: the stream stayed parked", 7),
    ],
)
def test_wherever_the_kubelet_cuts_a_message_the_verdict_and_fault_stay(
    outcome: Outcome, fault: str, line: str, devices: int
) -> None:
    """It keeps the beginning: 12 KiB divided among all containers of a pod, so 1,228 bytes where there are ten.

    Of the devices as many are shown as have room in the annotation.
    """
    message = _message(outcome, fault, line)
    found = [json.loads(_annotation(message[:end]) or "") for end in range(80, len(message) + 1)]
    assert {(value["verdict"], value["fault"]) for value in found} == {(str(outcome), fault)}
    assert {len(value["deviceUUIDs"]) for value in found} == {0, devices}
    assert {len(value["deviceUUIDs"]) for value in found[1228 - 80 :]} == {devices}


@pytest.mark.parametrize("message", ["", " ", "\n\n"])
def test_an_empty_message_is_no_verdict(message: str) -> None:
    assert _annotation(message) is None


@given(st.text(), st.text() | DOCUMENTS.map(json.dumps))
def test_any_message_gives_a_value_that_has_its_room_beside_the_plan(first: str, rest: str) -> None:
    value = _annotation(f"{first}\n{rest}")
    assert value is None or len("cpuplan.dev/hostflag") + len(value.encode()) <= HOSTFLAG_BYTES


def test_many_devices_are_cut_to_the_room_there_is() -> None:
    uuids = [f"GPU-41b3359c-e721-56e5-8009-12e5797ed5{number:02}" for number in range(16)]
    text = _annotation("pass\n" + json.dumps({"deviceUUIDs": uuids})) or ""
    assert json.loads(text)["deviceUUIDs"] == uuids[:8]


def test_what_is_no_code_or_id_never_reaches_the_annotation() -> None:
    message = "pass\n" + json.dumps({"deviceUUIDs": ["GPU-1", "<b>", 3, "x" * 500], "fault": "\u2028" * 9})
    value = json.loads(_annotation(message) or "")
    assert (value["deviceUUIDs"], value["fault"]) == (["GPU-1"], "")


def _verdict_of(pod: Pod) -> tuple[str, str]:
    value = json.loads(hostflag_annotation(pod, "boot") or '{"verdict": "", "fault": ""}')
    return value["verdict"], value["fault"]


def test_an_init_container_that_was_killed_without_a_word_is_a_crash() -> None:
    assert _verdict_of(_pod({"exitCode": 137, "reason": "OOMKilled"})) == ("fail", "init-crashed")


def test_an_init_container_that_ended_with_its_pod_is_none() -> None:
    assert _verdict_of(_pod({"exitCode": 143}, is_deleting=True)) == ("", "")


def test_an_init_container_that_ended_well_without_a_word_says_nothing() -> None:
    assert _verdict_of(_pod({"exitCode": 0})) == ("", "")


PASSED = {"exitCode": 0, "message": "pass ok: 14 checks in 2.1 s"}
KEPT_FROM_STARTING = {
    "exitCode": 3,
    "message": f'stuck device-stuck: x\n{{"verdict":"stuck","fault":"device-stuck","podUID":"{POD_UID}"}}',
}


@pytest.mark.parametrize(
    ("engine", "verdict"),
    [
        ({"state": {"terminated": KEPT_FROM_STARTING}}, ("stuck", "device-stuck")),
        ({"state": {"waiting": {}}, "lastState": {"terminated": KEPT_FROM_STARTING}}, ("stuck", "device-stuck")),
        ({"state": {"running": {}}, "ready": True, "lastState": {"terminated": KEPT_FROM_STARTING}}, ("pass", "")),
        ({"state": {"terminated": {"exitCode": 1, "message": "stuck device-stuck: x"}}}, ("pass", "")),
        ({"state": {"terminated": {"exitCode": 1, "message": 'fail x\n{"podUID":"other"}'}}}, ("pass", "")),
    ],
    ids=["ended", "waits", "is ready", "a message of its own", "another pod's"],
)
def test_a_worse_verdict_of_cpuplan_run_counts_while_its_command_does_not_run(
    engine: dict[str, object], verdict: tuple[str, str]
) -> None:
    assert _verdict_of(_pod(PASSED, engine)) == verdict


ENDED: dict[str, object] = {"state": {"terminated": KEPT_FROM_STARTING}}
AGAIN: dict[str, object] = {"state": {"running": {}}, "ready": False, "lastState": ENDED["state"]}
WAITS: dict[str, object] = {"state": {"waiting": {}}, "lastState": ENDED["state"]}


def test_a_crash_loop_changes_the_verdict_once() -> None:
    """While the container runs and is not ready, its self-test may go on: what stands goes on counting."""
    standing, seen = hostflag_annotation(_pod(PASSED), "boot"), []
    for engine in (ENDED, WAITS, AGAIN, ENDED, WAITS, AGAIN, AGAIN | {"ready": True}):
        standing = hostflag_annotation(_pod(PASSED, engine, standing=standing), "boot")
        seen.append(json.loads(standing or "")["verdict"])
    assert seen == ["stuck"] * 6 + ["pass"]


def test_an_engine_that_is_unready_for_a_while_is_not_judged_by_an_earlier_start() -> None:
    passed = hostflag_annotation(_pod(PASSED), "boot")
    assert hostflag_annotation(_pod(PASSED, AGAIN, standing=passed), "boot") == passed


@pytest.mark.parametrize("standing", ["", "[]", '{"verdict":"stuck"}', '{"podUID":"other","verdict":"stuck"}', "{"])
def test_what_stands_and_is_no_verdict_of_this_pod_counts_for_nothing(standing: str) -> None:
    assert _verdict_of(_pod(PASSED, AGAIN, standing=standing)) == ("pass", "")
    assert hostflag_annotation(_pod({"exitCode": 0}, standing=standing), "boot") is None


def test_a_verdict_that_stands_stays_when_the_init_container_is_not_shown_any_more() -> None:
    standing = hostflag_annotation(_pod(PASSED), "boot")
    assert hostflag_annotation(_pod({"exitCode": 0}, standing=standing), "boot") == standing
