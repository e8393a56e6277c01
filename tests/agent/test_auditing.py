"""The agent's audit of its node: which containers it looks at, what becomes of it, and that it writes nothing."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest

from cpuplan.agent.settings import add_arguments, settings_from
from cpuplan.kube.paths import pod_path
from tests.agent.node import MakeNode, TestNode
from tests.agent.test_process import LIMIT_SECONDS, running_agent
from tests.waiting import until

LOCAL_TO_NODE_0, LOCAL_TO_NODE_1 = "0000:1b:00.0", "0000:9d:00.0"
ON_NODE_0 = "0-7"


@pytest.fixture
def node(make_node: MakeNode) -> TestNode:
    """An eight-GPU server with a pod far from its GPU, one near it, one with a plan, and one without a GPU."""
    node = make_node()
    node.add_pod("far", setting=None, gpus={"engine": [LOCAL_TO_NODE_1]}, cpu_limit="4")
    node.run_container("far", "engine", cpuset=ON_NODE_0, quota="400000 100000")
    node.add_pod("near", setting=None, gpus={"engine": [LOCAL_TO_NODE_0]})
    node.run_container("near", "engine", cpuset=ON_NODE_0)
    node.add_pod("planned", gpus={"engine": [LOCAL_TO_NODE_1]})
    node.run_container("planned", "engine", cpuset="0-223")
    node.add_pod("web", setting=None)
    node.run_container("web", "engine", cpuset="0-223", quota="100000 100000")
    return node


def containers(node: TestNode) -> dict[str, dict[str, Any]]:
    """What the last audit says of each container, by its name."""
    document = json.loads(node.assembled.auditor.document())
    return {entry["name"]: entry for entry in document["containers"]}


def findings(node: TestNode) -> dict[str, list[str]]:
    """The tests that failed, by pod."""
    return {
        name.split()[0]: [finding["test"] for finding in entry["findings"]] for name, entry in containers(node).items()
    }


def test_running_containers_with_gpus_are_audited_planned_or_not(node: TestNode) -> None:
    node.turn()
    assert findings(node) == {"far": ["remote-cpus", "pools-unbounded"], "near": [], "planned": []}
    far = containers(node)["far container engine"]
    assert (far["namespace"], far["planned"], far["mask"], far["localCpus"]) == ("default", False, ON_NODE_0, "")
    assert (far["quota"], far["usable"], far["devices"]) == (4.0, 4, [LOCAL_TO_NODE_1])


@pytest.mark.parametrize(("setting", "found"), [("auto", []), ("off", ["partly-remote-cpus"])])
def test_a_plan_that_pins_keeps_step_threads_from_remote_cpus(node: TestNode, setting: str, found: list[str]) -> None:
    node.annotate("planned", step_thread_core=setting)
    node.turn()
    assert findings(node)["planned"] == found
    assert containers(node)["planned container engine"]["planned"] is True


def test_an_audit_writes_nothing(node: TestNode) -> None:
    assert {patch.path for patch in node.turn()} == {pod_path("default", "planned")}
    node.clock.advance(60)
    assert node.turn() == []


def test_the_mask_is_audited_as_it_is_reserved_cpus_included(make_node: MakeNode) -> None:
    node = make_node(reserved_cpus=frozenset({0, 1}))
    node.add_pod("near", setting=None, gpus={"engine": [LOCAL_TO_NODE_0]})
    node.run_container("near", "engine", cpuset=ON_NODE_0)
    node.turn()
    assert containers(node)["near container engine"]["mask"] == ON_NODE_0


@pytest.mark.parametrize("how", ["remove_pod", "end_pod"])
def test_a_pod_that_is_over_is_not_audited(node: TestNode, how: str) -> None:
    getattr(node, how)("far")
    node.turn()
    assert set(findings(node)) == {"near", "planned"}


def test_a_container_that_does_not_run_has_no_cpus_to_audit(node: TestNode) -> None:
    node.add_pod("new", setting=None, gpus={"engine": [LOCAL_TO_NODE_0]})
    node.turn()
    assert "new" not in findings(node)


def test_variables_of_the_specification_bound_pools(node: TestNode) -> None:
    env = [{"name": "OMP_NUM_THREADS", "value": "64"}]
    resources = {"limits": {"nvidia.com/gpu": "1"}}
    node.patch("far", {"spec": {"containers": [{"name": "engine", "resources": resources, "env": env}]}})
    node.turn()
    assert findings(node)["far"] == ["remote-cpus", "pools-over-quota"]


def test_while_the_kubelet_does_not_answer_devices_are_unknown(node: TestNode) -> None:
    node.kubelet.stop()
    node.turn()
    assert findings(node)["near"] == ["device-unknown"]


def test_an_audit_is_made_again_when_it_is_ten_seconds_old_and_a_change_waits_for_that(node: TestNode) -> None:
    node.turn()
    node.clock.advance(4)
    node.run_container("far", "engine", cpuset="56-63", quota="400000 100000")
    node.turn()
    assert "remote-cpus" in findings(node)["far"]
    assert node.assembled.auditor.due_seconds == 6
    node.clock.advance(6)
    node.turn()
    assert findings(node)["far"] == ["pools-unbounded"]
    assert node.assembled.auditor.due_seconds is None


def test_before_the_first_audit_there_is_no_document_and_then_its_age_is_told(node: TestNode) -> None:
    assert node.assembled.auditor.document() == ""
    node.turn()
    node.clock.advance(2.5)
    document = json.loads(node.assembled.auditor.document())
    assert (document["version"], document["node"], document["secondsOld"]) == (1, "n1", 2.5)


def test_metrics_count_containers_and_findings_by_test(node: TestNode) -> None:
    node.annotate("planned", step_thread_core="off")
    node.turn()
    assert node.metric("audit_gpu_containers", planned="no") == 2
    assert node.metric("audit_gpu_containers", planned="yes") == 1
    assert node.metric("audit_findings", test="remote-cpus", planned="no") == 1
    assert node.metric("audit_findings", test="partly-remote-cpus", planned="yes") == 1
    assert node.metric("audit_findings", test="too-few-cpus", planned="no") == 0
    node.remove_pod("far")
    node.clock.advance(11)
    node.turn()
    assert node.metric("audit_findings", test="remote-cpus", planned="no") == 0


def test_a_pod_that_cannot_be_audited_is_left_out_alone(node: TestNode, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = node.assembled.auditor._facts
    real = facts.cgroup
    monkeypatch.setattr(facts, "cgroup", lambda pod, container: 1 / 0 if pod.name == "far" else real(pod, container))
    node.turn()
    assert set(findings(node)) == {"near", "planned"}


def test_the_process_serves_its_audit_beside_the_metrics(node: TestNode, tmp_path: Path) -> None:
    with running_agent(node, tmp_path) as agent:
        until(lambda: agent.get("/audit")[0] == 200, limit_seconds=LIMIT_SECONDS)
        document = json.loads(agent.get("/audit")[1])
        assert (document["node"], len(document["containers"])) == ("n1", 3)
        assert 'cpuplan_agent_audit_findings{planned="no",test="remote-cpus"} 1.0' in agent.get("/metrics")[1]


@pytest.mark.parametrize(("value", "is_served"), [("on", True), ("off", False)])
def test_an_administrator_can_turn_the_page_off(value: str, is_served: bool) -> None:
    parser = ArgumentParser()
    add_arguments(parser, {})
    settings = settings_from(parser.parse_args(["--node-name", "n1", "--cgroup-root", "/proc", "--audit", value]))
    assert settings.is_audit_served is is_served
