"""`cpuplan audit` on the installed product, with the rights that docs/audit.md names and no others."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cpuplan.cli.main import main
from tests.cluster.fixture import RELEASE
from tests.endtoend.conftest import Stage, until

PAGE = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
ROLE = yaml.safe_load(re.search(r"^    apiVersion: rbac.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)[0])  # type: ignore[index]
ACCOUNT = "auditor"

Audit = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def audit(stage: Stage, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Audit]:
    """Runs `cpuplan audit -o json` as a service account that is bound to the page's role alone."""
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": stage.namespace, "namespace": RELEASE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ROLE["metadata"]["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": stage.namespace}],
    }
    stage.cluster.kubectl("create", "serviceaccount", ACCOUNT, "-n", stage.namespace)
    stage.cluster.apply(ROLE, binding)
    token = stage.cluster.kubectl("create", "token", ACCOUNT, "-n", stage.namespace).strip()
    config = json.loads(stage.cluster.kubectl("config", "view", "--raw", "--minify", "-o", "json"))
    config["users"][0]["user"] = {"token": token}
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))

    def run(*words: str) -> list[dict[str, Any]]:
        capfd.readouterr()
        exit_code = main(["audit", "--kubeconfig", str(path), "-o", "json", *words])
        output, complaint = capfd.readouterr()
        assert (exit_code, complaint) == (0, "")
        nodes: list[dict[str, Any]] = json.loads(output)
        return nodes

    yield run
    stage.cluster.kubectl("delete", "-n", RELEASE, f"rolebinding/{stage.namespace}", f"role/{ROLE['metadata']['name']}")


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
