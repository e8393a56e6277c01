"""Values that the chart refuses, with what it says; and that every value is explained."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from charts import generate
from tests.chart.rendering import CHART, RefusedError, manifests, one, rendered

SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def described(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str | None]]:
    """Every key that the schema fixes, with its sentence; what is Kubernetes' own below `resources` aside."""
    for key, value in schema.get("properties", {}).items():
        yield (*path, key), value.get("description")
        if key not in generate.FOREIGN_OBJECTS:
            yield from described(value, (*path, key))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("unknown=1", "additional properties 'unknown' not allowed"),
        ("agent.unknown=1", "at '/agent': additional properties 'unknown' not allowed"),
        ("agent.flowSchema.unknown=1", "at '/agent/flowSchema': additional properties 'unknown' not allowed"),
        ("agent.seLinuxOptions.typ=x", "at '/agent/seLinuxOptions': additional properties 'typ' not allowed"),
        ("image.digest=sha256:12", "at '/image/digest': 'sha256:12' does not match pattern"),
        ("image.pullPolicy=Sometimes", "value must be one of 'Always', 'IfNotPresent', 'Never'"),
        (
            "injection.maxCpu=2000m",
            "injection.maxCpu: 2000m is a whole CPU, which the kubelet's static policy would take",
        ),
        ("injection.maxCpu=2", "at '/injection/maxCpu': got number, want string"),
        ("injection.waitSeconds=0", "at '/injection/waitSeconds': minimum: got 0, want 1"),
        ("injection.nonRootUser=0", "at '/injection/nonRootUser': minimum: got 0, want 1"),
        ("policies.mutating=yes", "value must be one of 'auto', 'enabled', 'disabled'"),
        ("policies.mutatingFailurePolicy=Maybe", "value must be one of 'Ignore', 'Fail'"),
        ("deviceResources={gpu}", "at '/deviceResources/0': 'gpu' does not match pattern"),
        ("agent.reservedCpus=0-", "at '/agent/reservedCpus': '0-' does not match pattern"),
        ("agent.maxPinnedPerPod=-1", "at '/agent/maxPinnedPerPod': minimum: got -1, want 0"),
        ("agent.sysfsRoot=sys", "at '/agent/sysfsRoot': 'sys' does not match pattern"),
        ("agent.logLevel=loud", "value must be one of 'error', 'warning', 'info', 'debug'"),
        ("agent.resources.limits.cpu=many", "at '/agent/resources/limits/cpu': 'many' does not match pattern"),
        ("agent.maxUnavailable=120%", "at '/agent/maxUnavailable': '120%' does not match pattern"),
        ("operator.replicas=-1", "at '/operator/replicas': minimum: got -1, want 0"),
    ],
)
def test_a_wrong_value_is_refused_where_it_stands(setting: str, words: str) -> None:
    with pytest.raises(RefusedError) as refusal:
        rendered(setting)
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    "settings",
    [
        ("agent.resources.requests=null", "agent.resources.limits.cpu=2"),
        ("agent.resources.limits.cpu=2", "agent.resources.requests.cpu=2", "agent.resources.requests.memory=256Mi"),
        ("agent.resources.limits.cpu=2", "agent.resources.requests.cpu=2000m", "agent.resources.requests.memory=256Mi"),
        ("agent.resources.limits.cpu=2.0", "agent.resources.requests.cpu=null", "agent.resources.requests.memory=null"),
    ],
    ids=["limits alone", "equal numbers", "equal in thousandths", "requests left to default"],
)
def test_an_agent_with_exclusive_cpus_is_refused(settings: tuple[str, ...]) -> None:
    with pytest.raises(RefusedError) as refusal:
        rendered(*settings)
    assert (
        "whole CPUs would leave the shared CPU pool, which the agent reports from its own affinity; "
        "leave out limits.cpu, or set requests.cpu below it" in str(refusal.value)
    )


@pytest.mark.parametrize(
    "settings",
    [
        ("agent.resources.limits.cpu=2",),
        ("agent.resources.requests=null", "agent.resources.limits.cpu=500m"),
        ("agent.resources.requests=null", "agent.resources.limits.memory=null", "agent.resources.limits.cpu=2"),
        ("agent.resources.requests=null", "agent.resources.limits=null"),
    ],
    ids=["burstable", "guaranteed with a fraction", "no memory limit", "best effort"],
)
def test_an_agent_in_the_shared_pool_is_accepted(settings: tuple[str, ...]) -> None:
    assert one(manifests(*settings), "DaemonSet", "cpuplan-agent")


def test_helm_s_global_values_are_let_through() -> None:
    assert manifests("global.anything=1")


def test_the_schema_is_a_valid_one_and_the_defaults_fit_it() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(yaml.safe_load((CHART / "values.yaml").read_text()), SCHEMA)


def test_schema_and_values_say_the_same_sentence_for_every_key() -> None:
    assert {path: text for path, text in described(SCHEMA) if path != ("global",)} == generate.value_comments()
