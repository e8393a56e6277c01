"""docs/plan.schema.json against the plans that the code publishes, and the code against the schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cpuplan.model import reasons
from cpuplan.model.errors import CpuPlanError
from cpuplan.model.podplan import PodPlan
from tests.conftest import TreeOf
from tests.machines import machine_names
from tests.podvolume import plan_of_pod

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "plan.schema.json").read_text(encoding="utf-8"))
validator = jsonschema.Draft202012Validator(SCHEMA)


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", machine_names())
@pytest.mark.parametrize("setting", ["auto", "off", "banana"])
def test_every_published_plan_fits_the_schema(own_machine: TreeOf, name: str, setting: str) -> None:
    plan = plan_of_pod(name, own_machine(name), quota=4.5, setting=setting)

    validator.validate(json.loads(plan.to_json()))


def test_the_schema_lists_every_reason_that_a_plan_can_have() -> None:
    assert set(SCHEMA["$defs"]["container"]["properties"]["reason"]["enum"]) == reasons.OF_PLANS


@pytest.fixture
def document(own_machine: TreeOf) -> dict[str, Any]:
    """A published plan that fits."""
    found: dict[str, Any] = json.loads(plan_of_pod("h100-server", own_machine("h100-server")).to_json())
    return found


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda plan: plan.pop("podUID"), id="without a pod UID"),
        pytest.param(lambda plan: plan.update(version=2), id="of another version"),
        pytest.param(lambda plan: plan.update(generation=-1), id="with a negative generation"),
        pytest.param(lambda plan: plan.update(generation=True), id="with a truth value for a number"),
        pytest.param(lambda plan: plan["containers"].update(x=3), id="with a container that is no object"),
        pytest.param(lambda plan: plan["containers"]["engine"].pop("mask"), id="without a mask"),
        pytest.param(lambda plan: plan["containers"]["engine"].update(mask="banana"), id="with a malformed mask"),
        pytest.param(lambda plan: plan["containers"]["engine"].update(quota="4"), id="with a quota that is text"),
        pytest.param(lambda plan: plan["containers"]["engine"].update(result=-1), id="with a negative CPU"),
        pytest.param(lambda plan: plan["containers"]["engine"]["workers"][0].pop("cpus"), id="with half a worker"),
    ],
)
def test_what_the_schema_refuses_the_reader_refuses_too(
    document: dict[str, Any], spoil: Callable[[dict[str, Any]], None]
) -> None:
    spoil(document)

    assert not validator.is_valid(document)
    with pytest.raises(CpuPlanError) as refused:
        PodPlan.from_json(json.dumps(document))
    assert refused.value.reason == "invalid-plan"
