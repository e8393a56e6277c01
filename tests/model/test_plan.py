"""The plan of one deployment as a value, and its JSON form."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpuplan.model import reasons
from cpuplan.model.errors import CpuPlanError
from cpuplan.model.plan import CpuPlan, StepCpus, size_pools, usable_count

CPUS = st.frozensets(st.integers(0, 300), max_size=20)
PLANS = st.builds(
    CpuPlan,
    mask=CPUS,
    usable=st.integers(1, 4096),
    workers=st.lists(st.none() | st.builds(StepCpus, CPUS, st.text(max_size=20)), max_size=8).map(tuple),
    result=st.none() | st.integers(0, 300),
    why=st.text(max_size=40),
    reason=st.sampled_from(sorted(reasons.OF_PLANS)),
)


@pytest.mark.parametrize(
    ("mask_size", "quota", "usable"),
    [(8, None, 8), (0, None, 1), (8, 3.99, 3), (8, 0.25, 1), (8, 64.0, 8), (0, 0.5, 1), (4, 1e300, 4)],
)
def test_the_quota_bounds_the_usable_cpus_and_one_always_is(mask_size: int, quota: float | None, usable: int) -> None:
    assert usable_count(mask_size, quota) == usable


@pytest.mark.parametrize(
    ("left", "preprocess", "png", "encode", "copy"),
    [
        (1, 1, 1, 1, 1),
        (2, 1, 2, 1, 2),
        (7, 1, 7, 1, 7),
        (8, 2, 8, 1, 8),
        (16, 4, 8, 2, 8),
        (31, 4, 8, 3, 10),
        (32, 4, 8, 4, 8),
        (85, 4, 8, 4, 21),
        (0, 1, 1, 1, 1),
        (-5, 1, 1, 1, 1),
    ],
)
def test_pools_are_sized_by_what_is_left(left: int, preprocess: int, png: int, encode: int, copy: int) -> None:
    pools = size_pools(left)
    assert dataclasses.astuple(pools)[1:] == (preprocess, png, encode, copy)


@given(st.integers(-10, 10_000))
def test_encoding_never_needs_more_threads_than_are_left(left: int) -> None:
    pools = size_pools(left)
    assert 1 <= pools.encode_workers * pools.png_threads <= pools.left
    assert pools.copy_workers * pools.encode_workers <= pools.left


def test_pinned_cpus_are_taken_from_the_usable_ones_only_where_the_mask_has_them() -> None:
    plan = CpuPlan(frozenset(range(8)), 8, (StepCpus(frozenset({0, 1, 90}), "w"), None), 7)
    assert (plan.pinned, plan.left) == (frozenset({0, 1, 7, 90}), 5)


def test_a_plan_without_pins_is_off_by_default() -> None:
    plan = CpuPlan(frozenset({0}), 1)
    assert (plan.reason, plan.why, plan.pinned, plan.left) == ("off", "step_thread_core off", frozenset(), 1)


def test_a_plan_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        CpuPlan(frozenset({0}), 1).usable = 2  # type: ignore[misc]


@given(PLANS)
def test_a_plan_reads_back_equal_from_its_json(plan: CpuPlan) -> None:
    assert CpuPlan.from_json(plan.to_json()) == plan


GOOD = json.loads(CpuPlan(frozenset({0, 1}), 2, (StepCpus(frozenset({0}), "w"),), 1, "why", "pinned").to_json())


def test_an_unknown_field_of_a_later_minor_writer_is_passed_over() -> None:
    assert CpuPlan.from_json(json.dumps(GOOD | {"later": 1})).result == 1


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "1", '"plan"', "{}", "[" * 100_000, '{"version":1', "NaN", "\x00", '{"a":1}']
)
def test_text_that_is_no_plan_is_refused_with_what_stood_there(text: str) -> None:
    with pytest.raises(CpuPlanError, match="not a CPU plan: expected a JSON object with a version, got ") as refusal:
        CpuPlan.from_json(text)
    assert (refusal.value.reason, len(str(refusal.value)) < 200) == ("invalid-plan", True)


@pytest.mark.parametrize("version", [0, 2, "1", None, 1.5, [1]])
def test_another_version_is_refused_with_both_versions(version: object) -> None:
    with pytest.raises(CpuPlanError, match=r"version .*, this reader understands version 1"):
        CpuPlan.from_json(json.dumps(GOOD | {"version": version}))


@pytest.mark.parametrize(
    "change",
    [
        {"mask": None},
        {"mask": "a-b"},
        {"mask": 3},
        {"usable": 0},
        {"usable": "4"},
        {"usable": True},
        {"usable": 1.5},
        {"workers": None},
        {"workers": [1]},
        {"workers": [{}]},
        {"workers": [{"cpus": "x", "why": ""}]},
        {"workers": "ab"},
        {"result": -1},
        {"result": "1"},
        {"result": True},
    ],
)
def test_a_malformed_field_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(CpuPlanError, match=r"not a CPU plan: (a field is malformed|the field cpus is missing)"):
        CpuPlan.from_json(json.dumps(GOOD | change))


@pytest.mark.parametrize("field", sorted(set(GOOD) - {"version"}))
def test_a_missing_field_is_refused_by_name(field: str) -> None:
    with pytest.raises(CpuPlanError, match=f"not a CPU plan: the field {field} is missing"):
        CpuPlan.from_json(json.dumps({key: value for key, value in GOOD.items() if key != field}))
