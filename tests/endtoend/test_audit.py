"""`cpuplan audit` on the installed product, with the rights that docs/audit.md names and no others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cpuplan.cli.main import main
from tests.endtoend.conftest import Stage, until

Audit = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def audit(auditor: Path, capfd: pytest.CaptureFixture[str]) -> Audit:
    """Runs `cpuplan audit -o json` as a service account that is bound to the page's role alone."""

    def run(*words: str) -> list[dict[str, Any]]:
        capfd.readouterr()
        exit_code = main(["audit", "--kubeconfig", str(auditor), "-o", "json", *words])
        output, complaint = capfd.readouterr()
        assert (exit_code, complaint) == (0, "")
        nodes: list[dict[str, Any]] = json.loads(output)
        return nodes

    return run


def test_a_gpu_pod_that_nobody_annotated_is_found_with_its_real_quota(stage: Stage, audit: Audit) -> None:
    stage.make_pod("llm", limits={"cpu": "1500m"})
    stage.until_running("llm")

    def found() -> dict[str, Any] | None:
        nodes = audit("-n", stage.namespace)
        return next((entry for node in nodes for entry in node["containers"]), None)

    entry = until(found, "the audit of the pod's node has the pod")
    assert (entry["name"], entry["planned"], entry["quota"], entry["usable"]) == (
        "llm container engine",
        False,
        1.5,
        1,
    )
    assert len(entry["devices"]) == 1
    assert "too-few-cpus" in [finding["test"] for finding in entry["findings"]]
    assert {node["node"] for node in audit()} == set(stage.cluster.workers)


def test_an_audit_writes_nothing_on_the_pod(stage: Stage, audit: Audit) -> None:
    stage.make_pod("llm")
    stage.until_running("llm")
    until(lambda: any(node["containers"] for node in audit("-n", stage.namespace)), "the pod was audited")
    assert (stage.annotations("llm"), stage.labels("llm")) == ({}, {})
