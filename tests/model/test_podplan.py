"""The published plan of a pod as a value, and its JSON form."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpuplan.model import reasons
from cpuplan.model.errors import CpuPlanError
from cpuplan.model.podplan import ContainerPlan, PodPlan, Status, WorkerPlan
from cpuplan.model.withheld import Withheld, WithheldFor

CPUS = st.frozensets(st.integers(0, 300), max_size=12)
WORKERS = st.builds(
    WorkerPlan, st.none() | st.just("0000:1b:00.0"), st.none() | st.text(max_size=8), CPUS, st.text(max_size=8)
)
CONTAINERS = st.builds(
    ContainerPlan,
    setting=st.sampled_from(["auto", "off", "4", "banana"]),
    mask=CPUS,
    quota=st.none() | st.floats(0, 1e6),
    usable=st.integers(1, 4096),
    devices=st.lists(st.text(max_size=8), max_size=3).map(tuple),
    workers=st.lists(WORKERS, max_size=4).map(tuple),
    result=st.none() | st.integers(0, 300),
    pool_cpus=CPUS,
    confidence=st.sampled_from(["consistent", "suspicious", "unknown"]),
    reason=st.sampled_from(sorted(reasons.OF_PLANS)),
    why=st.text(max_size=20),
    shortage=st.text(max_size=20),
    withheld=st.dictionaries(st.sampled_from(WithheldFor), CPUS).map(
        lambda found: tuple(Withheld(why, cpus) for why, cpus in found.items())
    ),
    most_pinned=st.none() | st.integers(1, 4096),
    planned_confidence=st.sampled_from(["consistent", "suspicious", ""]),
)
POD_PLANS = st.builds(
    PodPlan,
    generation=st.integers(0, 10**9),
    pod_uid=st.text(max_size=8),
    boot_id=st.text(max_size=8),
    node=st.text(max_size=8),
    containers=st.dictionaries(st.text(max_size=8), CONTAINERS, max_size=3).map(lambda plans: tuple(plans.items())),
)

ENGINE = ContainerPlan(
    setting="auto",
    mask=frozenset(range(8)),
    quota=6.5,
    usable=6,
    devices=("GPU-1",),
    workers=(WorkerPlan("0000:1b:00.0", "GPU-1", frozenset({0, 4}), "core 0,4"),),
    result=3,
    pool_cpus=frozenset({1, 2, 5, 6}),
    confidence="consistent",
    reason="pinned",
    why="step threads on 0,4, result threads on CPU 3",
)
POD = PodPlan(3, "uid-1", "boot-1", "node-1", (("engine", ENGINE),))


@given(POD_PLANS)
def test_a_pod_plan_reads_back_equal_from_its_json(plan: PodPlan) -> None:
    assert PodPlan.from_json(plan.to_json()) == plan


def test_the_json_has_the_published_form() -> None:
    assert json.loads(POD.to_json()) == {
        "version": 1,
        "generation": 3,
        "podUID": "uid-1",
        "bootID": "boot-1",
        "node": "node-1",
        "containers": {
            "engine": {
                "setting": "auto",
                "mask": "0-7",
                "quota": 6.5,
                "usable": 6,
                "devices": ["GPU-1"],
                "workers": [{"address": "0000:1b:00.0", "uuid": "GPU-1", "cpus": "0,4", "why": "core 0,4"}],
                "result": 3,
                "pools": {"preprocessThreads": 1, "pngThreads": 3, "encodeWorkers": 1, "copyWorkers": 3},
                "poolCpus": "1-2,5-6",
                "confidence": "consistent",
                "reason": "pinned",
                "why": "step threads on 0,4, result threads on CPU 3",
            }
        },
    }


def test_what_later_versions_added_stands_there_where_it_says_something() -> None:
    plan = replace(
        ENGINE,
        shortage="too few",
        withheld=(
            Withheld(WithheldFor.ISOLATED, frozenset({8, 9})),
            Withheld(WithheldFor.RESERVED, frozenset({10})),
        ),
        most_pinned=2,
    )
    assert plan.to_document() == ENGINE.to_document() | {
        "shortage": "too few",
        "withheld": {"isolated": "8-9", "reserved": "10"},
        "mostPinned": 2,
    }
    assert (plan.withheld_cpus, str(plan.withheld[0])) == (frozenset({8, 9, 10}), "8-9 (isolated)")


def test_a_later_word_for_why_cpus_are_withheld_is_read() -> None:
    found = ContainerPlan.from_document(ENGINE.to_document() | {"withheld": {"broken": "8"}})
    assert found.withheld_cpus == frozenset({8})


@pytest.mark.parametrize(
    ("setting", "reason", "status"),
    [
        ("auto", "pinned", Status.PINNED),
        ("off", "off", Status.OFF),
        ("auto", "would-pin-all", Status.NOT_PINNED),
        ("4", "would-pin-all", Status.ERROR),
        ("auto", "conflict", Status.NOT_PINNED),
        ("4", "conflict", Status.ERROR),
        ("auto", "over-share", Status.NOT_PINNED),
        ("4", "over-share", Status.ERROR),
        ("4", "outside-mask", Status.ERROR),
        ("4", "too-few-cores-above", Status.ERROR),
        ("4", "cpu-gone", Status.ERROR),
        ("banana", "invalid-setting", Status.ERROR),
        ("auto", "too-few-cores", Status.NOT_PINNED),
        ("auto", "no-core-left", Status.NOT_PINNED),
        ("auto", "nothing-to-place", Status.NOT_PINNED),
        ("auto", "unsupported", Status.NOT_PINNED),
        ("4", "waiting-for-devices", Status.NOT_PINNED),
        ("auto", "device-unknown", Status.NOT_PINNED),
        ("auto", "no-device", Status.NOT_PINNED),
    ],
)
def test_a_status_follows_from_the_reason_and_the_setting(setting: str, reason: str, status: Status) -> None:
    assert replace(ENGINE, setting=setting, reason=reason).status == status


@pytest.mark.parametrize(
    ("others", "status"),
    [
        (["off"], Status.OFF),
        (["off", "conflict"], Status.NOT_PINNED),
        (["off", "conflict", "pinned"], Status.PINNED),
        (["pinned", "invalid-setting", "off"], Status.ERROR),
        ([], Status.OFF),
    ],
)
def test_a_pod_has_the_status_of_its_most_telling_container(others: list[str], status: Status) -> None:
    containers = tuple((f"c{index}", replace(ENGINE, reason=reason)) for index, reason in enumerate(others))
    assert replace(POD, containers=containers).status == status


def test_an_unpinned_plan_becomes_one_without_workers_in_the_process() -> None:
    plan = replace(ENGINE, workers=(replace(ENGINE.workers[0], cpus=frozenset()),), result=None, reason="conflict")
    assert (plan.as_cpu_plan().workers, plan.as_cpu_plan().reason) == ((), "conflict")


def test_a_pinned_plan_keeps_its_pins_and_pools_in_the_process() -> None:
    plan = ENGINE.as_cpu_plan()
    assert (plan.pinned, plan.result, plan.pools) == (frozenset({0, 3, 4}), 3, ENGINE.pools)


def test_a_new_generation_alone_says_nothing_new() -> None:
    assert POD.says_the_same_as(replace(POD, generation=9))
    assert not POD.says_the_same_as(replace(POD, boot_id="boot-2"))
    assert not POD.says_the_same_as(replace(POD, containers=()))


def test_a_container_is_found_by_name() -> None:
    assert POD.container("engine") == ENGINE
    assert POD.container("sidecar") is None


GOOD = json.loads(POD.to_json())


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", "[" * 100_000, "NaN"])
def test_text_that_is_no_plan_is_refused_with_what_stood_there(text: str) -> None:
    with pytest.raises(CpuPlanError, match="not a published plan: expected a JSON object with a version, got"):
        PodPlan.from_json(text)


@pytest.mark.parametrize(
    "change",
    [
        {"generation": -1},
        {"generation": True},
        {"generation": "1"},
        {"podUID": None},
        {"bootID": 3},
        {"node": []},
        {"containers": None},
        {"containers": []},
        {"containers": {"engine": None}},
        {"containers": {"engine": []}},
    ],
)
def test_a_malformed_field_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(CpuPlanError, match=r"not a published plan: (a field is malformed: |the field \w+ is missing)"):
        PodPlan.from_json(json.dumps(GOOD | change))


@pytest.mark.parametrize(
    "change",
    [
        {"setting": 4},
        {"mask": "x"},
        {"mask": None},
        {"quota": "6"},
        {"quota": True},
        {"quota": -1},
        {"quota": float("nan")},
        {"quota": float("inf")},
        {"usable": 1.5},
        {"usable": 0},
        {"devices": [1]},
        {"devices": None},
        {"workers": [{"address": 1, "uuid": None, "cpus": "", "why": ""}]},
        {"workers": [{"address": None, "uuid": None, "cpus": "a", "why": ""}]},
        {"workers": [{"address": None, "uuid": None, "cpus": ""}]},
        {"result": -1},
        {"result": False},
        {"poolCpus": 3},
        {"confidence": None},
        {"reason": 1},
        {"why": None},
        {"shortage": None},
        {"withheld": ["0-1"]},
        {"withheld": {"reserved": "x"}},
        {"withheld": {"reserved": None}},
        {"mostPinned": 0},
        {"mostPinned": "2"},
    ],
)
def test_a_malformed_field_of_a_container_is_refused(change: dict[str, Any]) -> None:
    engine = GOOD["containers"]["engine"] | change
    with pytest.raises(CpuPlanError, match=r"not a published plan: (a field is malformed: |the field \w+ is missing)"):
        PodPlan.from_json(json.dumps(GOOD | {"containers": {"engine": engine}}))
