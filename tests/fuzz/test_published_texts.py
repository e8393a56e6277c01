"""What stands on pods and in their volumes: a value or an error of ours, never anything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cpuplan.agent.verdict import hostflag_annotation
from cpuplan.agent.workers import MOST_WORKERS, workers_of
from cpuplan.cli.errors import CliError
from cpuplan.cli.podsource import read_file
from cpuplan.host.root import HostRoot
from cpuplan.inprocess.published import PublishedPlan, read_published
from cpuplan.kube.annotations import HOSTFLAG, HOSTFLAG_BYTES, MOST_BYTES, PLAN, annotations_of, next_plan, plan_in
from cpuplan.kube.pods import parse_pod
from cpuplan.model.errors import CpuPlanError
from cpuplan.model.podplan import PodPlan
from cpuplan.model.request import WorkerDevice
from cpuplan.planning.setting import parse_setting
from cpuplan.planning.standing import is_sound
from tests.fuzz.effort import fuzz
from tests.fuzz.mutation import file_contents, json_values, mutated, outcome_of

CONTAINER = {
    "setting": "auto",
    "mask": "0-7",
    "quota": 4.5,
    "usable": 4,
    "devices": ["GPU-1"],
    "workers": [{"address": "0000:1b:00.0", "uuid": "GPU-1", "cpus": "0,4", "why": "near"}],
    "result": 7,
    "pools": {},
    "poolCpus": "1-3,5-6",
    "confidence": "consistent",
    "reason": "pinned",
    "why": "step threads on 0,4",
}
DOCUMENT = {"version": 1, "generation": 3, "podUID": "u", "bootID": "b", "node": "n", "containers": {"e": CONTAINER}}
TEXT = json.dumps(DOCUMENT)
STANDING = ('{"verdict":"stuck","fault":"device-stuck","bootID":"b","podUID":"u","deviceUUIDs":[]}', "", "[]", "{}")
MESSAGES = (
    'pass\n{"verdict":"pass","fault":"","bootID":"b","podUID":"u","deviceUUIDs":["GPU-1"]}',
    "fail wrap-lost: the stream stayed parked",
    "untested",
)
JSON = json_values([*DOCUMENT, *CONTAINER, "e", "address", "uuid", "cpus"])


@st.composite
def plan_documents(draw: st.DrawFn) -> str:
    """A plan's JSON with a few of its members, at any depth, replaced or removed."""
    document: dict[str, Any] = json.loads(TEXT)
    places = [document, document["containers"], document["containers"]["e"], *document["containers"]["e"]["workers"]]
    for place in draw(st.lists(st.sampled_from(places), max_size=3)):
        key = draw(st.sampled_from(sorted(place) or ["e"]))
        if draw(st.booleans()):
            place.pop(key, None)
        else:
            place[key] = draw(JSON)
    return json.dumps(document)


PLANS = plan_documents() | mutated([TEXT, "", "null", "[]", "{}"]) | JSON.map(json.dumps)


@fuzz
@given(PLANS)
def test_a_plan_reads_back_equal_or_is_an_error_of_ours(text: str) -> None:
    plan = outcome_of(lambda: PodPlan.from_json(text), CpuPlanError)
    assert isinstance(plan, CpuPlanError) or PodPlan.from_json(plan.to_json()) == plan


@fuzz
@given(PLANS)
def test_whatever_plan_stands_on_a_pod_can_be_followed_by_another(text: str) -> None:
    standing = outcome_of(lambda: plan_in({PLAN: text}), CpuPlanError)
    previous = standing if isinstance(standing, PodPlan) else None
    following = next_plan(previous, PodPlan.from_json(TEXT))
    assert following.generation >= 1
    assert sum(map(len, annotations_of(following).values())) <= MOST_BYTES or following == previous
    assert all(is_sound(plan) in {True, False} for _, plan in (() if previous is None else previous.containers))


@fuzz
@given(plan=PLANS.map(str.encode) | st.binary(max_size=60), uid=file_contents(("u",)), boot_id=file_contents(("b",)))
def test_a_pods_volume_is_a_plan_or_a_sentence(tmp_path: Path, plan: bytes, uid: bytes, boot_id: bytes) -> None:
    root = HostRoot(proc=tmp_path / "proc")
    boot_file = root.proc / "sys" / "kernel" / "random" / "boot_id"
    boot_file.parent.mkdir(parents=True, exist_ok=True)
    for path, content in ((tmp_path / "plan", plan), (tmp_path / "uid", uid), (boot_file, boot_id)):
        path.write_bytes(content)
    found = read_published("e", folder=tmp_path, root=root)
    assert isinstance(found, PublishedPlan) or found.why


@fuzz
@given(content=PLANS.map(lambda plan: json.dumps({"kind": "Pod", "metadata": {"annotations": {PLAN: plan}}})) | PLANS)
def test_a_file_with_a_pod_or_a_plan_is_one_or_an_error_of_ours(tmp_path: Path, content: str) -> None:
    (tmp_path / "pod.json").write_text(content)
    found = outcome_of(lambda: read_file(str(tmp_path / "pod.json")), CliError)
    assert isinstance(found, CliError) or found.plan


@fuzz
@given(mutated(("off", "auto", "4", "-1", " 4", "4.0")))
def test_a_setting_is_one_of_three_forms_or_an_error_of_ours(text: str) -> None:
    setting = outcome_of(lambda: parse_setting(text), CpuPlanError)
    assert isinstance(setting, (int, CpuPlanError)) or setting in {"off", "auto"}


@fuzz
@given(mutated(("0,0,1,-", "-", "0", " 0 , 1 ", "")), st.integers(0, 3))
def test_workers_are_given_devices_or_the_value_is_an_error_of_ours(text: str, device_count: int) -> None:
    devices = [WorkerDevice(f"0000:0{number}:00.0") for number in range(device_count)]
    workers = outcome_of(lambda: workers_of(text, devices), CpuPlanError)
    assert isinstance(workers, CpuPlanError) or 1 <= len(workers) <= MOST_WORKERS


@fuzz
@given(mutated(MESSAGES) | JSON.map(lambda value: f"pass\n{json.dumps(value)}"), mutated(STANDING), st.booleans())
def test_a_verdict_is_small_json_or_none(message: str, standing: str, is_of_init: bool) -> None:
    """Whoever's message it is, and whatever stands on the pod, while the engine runs and is not ready."""
    init = {"terminated": {"exitCode": 0, "message": message if is_of_init else ""}}
    run = {"terminated": {"exitCode": 3, "message": message}}
    pod = parse_pod(
        {
            "metadata": {"namespace": "n", "name": "p", "uid": "u", "annotations": {HOSTFLAG: standing}},
            "spec": {"initContainers": [{"name": "cpuplan"}], "containers": [{"name": "engine"}]},
            "status": {
                "initContainerStatuses": [{"name": "cpuplan", "state": init}],
                "containerStatuses": [{"name": "engine", "state": {"running": {}}, "lastState": run}],
            },
        }
    )
    verdict = hostflag_annotation(pod, "b")
    assert verdict is None or (
        json.loads(verdict)["podUID"] == "u" and len(HOSTFLAG) + len(verdict.encode()) <= HOSTFLAG_BYTES
    )
