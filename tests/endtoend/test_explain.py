"""`cpuplan explain POD` on the installed product, through the API server's own proxy, with the documented rights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cpuplan.cli.main import main
from tests.cluster.fixture import RELEASE
from tests.endtoend.conftest import AUDITOR, Stage, until

Explain = Callable[[str], dict[str, Any]]


@pytest.fixture
def explain(stage: Stage, auditor: Path, capfd: pytest.CaptureFixture[str]) -> Explain:
    """Runs `cpuplan explain -o json` as an account that may get its own pods, and has the role of docs/audit.md."""
    stage.cluster.kubectl("create", "role", "reader", "-n", stage.namespace, "--verb=get", "--resource=pods")
    account = f"--serviceaccount={stage.namespace}:{AUDITOR}"
    stage.cluster.kubectl("create", "rolebinding", "reader", "-n", stage.namespace, "--role=reader", account)

    def run(name: str) -> dict[str, Any]:
        capfd.readouterr()
        exit_code = main(["explain", name, "-n", stage.namespace, "--kubeconfig", str(auditor), "-o", "json"])
        output, complaint = capfd.readouterr()
        assert (exit_code, complaint) == (0, "")
        document: dict[str, Any] = json.loads(output)
        return document

    return run


def test_a_running_pod_is_explained_with_the_files_of_its_cgroup_on_the_node(stage: Stage, explain: Explain) -> None:
    stage.make_pod("llm", annotations={"step_thread_core": "auto"}, limits={"cpu": "1500m"})
    stage.until_running("llm")

    def running() -> dict[str, Any] | None:
        document = explain("llm")
        assert document["agentTrouble"] is None or "ask again in a moment" in document["agentTrouble"]
        reasons = document["containers"]["engine"]["reasons"]
        return document if any("the tightest limit from its cgroup up" in each["text"] for each in reasons) else None

    stage.plan("llm")
    document = until(running, "the agent has seen the container's cgroup")
    sources = [source for each in document["containers"]["engine"]["reasons"] for source in each["sources"]]
    quotas = {source["file"].rpartition("/")[2]: source["value"] for source in sources if "/cpu." in source["file"]}
    assert quotas in ({"cpu.max": "150000 100000"}, {"cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "100000"})
    assert all(source["file"].startswith("/sys/fs/cgroup/") for source in sources if "/cpu." in source["file"])
    assert document["containers"]["engine"]["candidates"]


def test_an_account_without_the_role_gets_the_plan_and_is_told_the_role(stage: Stage, explain: Explain) -> None:
    stage.make_pod("llm", annotations={"step_thread_core": "auto"})
    plan = stage.plan("llm")
    stage.cluster.kubectl("delete", "rolebinding", stage.namespace, "-n", RELEASE)

    def refused() -> dict[str, Any] | None:
        document = explain("llm")
        return document if document["agent"] is None else None

    document = until(refused, "the authorizer has seen that the binding is gone")
    assert document["generation"] >= plan.generation
    assert document["agentTrouble"].endswith(" in namespace cpuplan, as the role in docs/audit.md gives them")
