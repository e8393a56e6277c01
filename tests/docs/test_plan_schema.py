"""docs/plan.schema.json against the plans that the code publishes, and the code against the schema."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cpuplan.model import reasons
from cpuplan.model.errors import CpuPlanError
from cpuplan.model.podplan import PodPlan
from cpuplan.model.withheld import Withheld, WithheldFor
from cpuplan.planning import confidence
from tests.conftest import TreeOf
from tests.machines import machine_names
from tests.podvolume import plan_of_pod

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = json.loads((DOCS / "plan.schema.json").read_text(encoding="utf-8"))
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


def test_the_schema_lists_every_word_for_why_cpus_are_withheld() -> None:
    withheld = SCHEMA["$defs"]["container"]["properties"]["withheld"]
    assert withheld["propertyNames"]["enum"] == [str(why) for why in WithheldFor]


def test_what_a_plan_says_of_its_cpus_fits_the_schema(own_machine: TreeOf) -> None:
    plan = plan_of_pod("h100-server", own_machine("h100-server"), quota=2.5)
    ((name, engine),) = plan.containers
    told = replace(
        engine,
        shortage="too few",
        withheld=tuple(Withheld(why, frozenset({index})) for index, why in enumerate(WithheldFor)),
        most_pinned=2,
        confidence="unknown",
        planned_confidence="suspicious",
    )
    validator.validate(json.loads(replace(plan, containers=((name, told),)).to_json()))


def test_the_table_of_reasons_has_every_reason_once() -> None:
    page = (DOCS / "annotations.md").read_text(encoding="utf-8")
    table = page.partition("### Status and reason")[2].partition("**A refusal stays.**")[0]
    listed = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    assert sorted(listed) == sorted({*reasons.OF_PLANS, reasons.INVALID_PLAN})


def test_the_page_lists_every_test_of_the_topology() -> None:
    source = Path(confidence.__file__).read_text(encoding="utf-8")
    made = set(re.findall(r'Finding\("([a-z-]+)"', source))
    table = (DOCS / "plan.md").read_text(encoding="utf-8").partition("## Confidence")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`([a-z-]+)`", " ".join(cells))) == made


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
