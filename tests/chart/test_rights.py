"""The rights that the chart hands out: exactly these, and nothing that opens a door."""

from __future__ import annotations

from typing import Any

import pytest

from cpuplan.controller.access import needed_rights
from tests.chart.rendering import NAMESPACE, manifests, one


def granted(kind: str, name: str) -> set[tuple[str, str, str]]:
    """(group, resource, verb) of every rule of a role."""
    rules: list[dict[str, Any]] = one(manifests(), kind, name)["rules"]
    assert all(set(rule) == {"apiGroups", "resources", "verbs"} for rule in rules)
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_an_agent_reads_and_patches_pods_and_reads_where_claims_lead() -> None:
    assert granted("ClusterRole", "cpuplan-agent") == {
        ("", "pods", "get"),
        ("", "pods", "list"),
        ("", "pods", "watch"),
        ("", "pods", "patch"),
        ("resource.k8s.io", "resourceclaims", "get"),
        ("resource.k8s.io", "resourceslices", "list"),
    }


def test_the_operator_reads_pods_and_nodes_and_writes_events() -> None:
    assert granted("ClusterRole", "cpuplan-operator") == {
        ("", "pods", "list"),
        ("", "pods", "watch"),
        ("", "nodes", "list"),
        ("", "events", "create"),
        ("", "events", "patch"),
    }


def test_the_operator_keeps_its_configmaps_and_its_lease_in_its_namespace_only() -> None:
    assert one(manifests(), "Role", "cpuplan-operator")["metadata"]["namespace"] == NAMESPACE
    assert granted("Role", "cpuplan-operator") == {
        ("", "configmaps", "get"),
        ("", "configmaps", "list"),
        ("", "configmaps", "create"),
        ("", "configmaps", "patch"),
        ("", "configmaps", "delete"),
        ("coordination.k8s.io", "leases", "get"),
        ("coordination.k8s.io", "leases", "create"),
        ("coordination.k8s.io", "leases", "update"),
    }


def test_the_operator_has_every_right_that_it_says_it_cannot_work_without() -> None:
    cluster, own = granted("ClusterRole", "cpuplan-operator"), granted("Role", "cpuplan-operator")
    missing = [
        right
        for right in needed_rights(NAMESPACE)
        if (right.group, right.resource, right.verb) not in (own if right.namespace else cluster)
    ]
    assert missing == []


@pytest.mark.parametrize("component", ["agent", "operator"])
def test_each_account_has_the_role_of_its_name_only(component: str) -> None:
    name = f"cpuplan-{component}"
    subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
    bindings = [item for item in manifests() if item["kind"].endswith("RoleBinding") and subject in item["subjects"]]
    assert {item["roleRef"]["name"] for item in bindings} == {name}
    assert all(item["subjects"] == [subject] for item in bindings)
