"""`cpuplan audit` on a node: which containers it looks at, and that it writes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cpuplan.agent.auditing import visible_pools
from cpuplan.cli.main import main
from tests.agent.node import NODE, MakeNode, TestNode

LOCAL_TO_NODE_0, LOCAL_TO_NODE_1 = "0000:1b:00.0", "0000:9d:00.0"


@pytest.fixture
def node(make_node: MakeNode) -> TestNode:
    """An eight-GPU server with two pods that nobody has asked a plan for, one that has one, and one without GPU."""
    node = make_node()
    node.add_pod("far", setting=None, gpus={"engine": [LOCAL_TO_NODE_1]}, cpu_limit="4")
    node.run_container("far", "engine", cpuset="0-7", quota="400000 100000")
    node.add_pod("near", setting=None, gpus={"engine": [LOCAL_TO_NODE_0]})
    node.run_container("near", "engine", cpuset="0-7")
    node.add_pod("asked", gpus={"engine": [LOCAL_TO_NODE_1]})
    node.add_pod("web", setting=None)
    return node


def audit(node: TestNode, tmp_path: Path, capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    roots = ["--sysfs-root", node.root.sys, "--proc-root", node.root.proc, "--cgroup-root", node.root.cgroup]
    places = ["--podresources-socket", node.kubelet.socket, "--kubeconfig", tmp_path / "kubeconfig"]
    exit_code = main(["audit", *map(str, roots), *map(str, places), *words])
    output, complaint = capfd.readouterr()
    return exit_code, output, complaint


def document(node: TestNode, tmp_path: Path, capfd: pytest.CaptureFixture[str], *words: str) -> Any:
    exit_code, output, complaint = audit(node, tmp_path, capfd, "--node-name", NODE, "-o", "json", *words)
    assert (exit_code, complaint) == (0, "")
    return json.loads(output)


def test_gpu_containers_without_a_plan_are_audited_those_with_findings_first(
    node: TestNode, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = document(node, tmp_path, capfd)

    assert [(entry["name"], [f["test"] for f in entry["findings"]]) for entry in found] == [
        ("default/far container engine", ["remote-cpus", "pools-unbounded"]),
        ("default/near container engine", []),
    ]
    assert (found[0]["mask"], found[0]["quota"], found[0]["devices"]) == ("0-7", 4.0, [LOCAL_TO_NODE_1])


def test_pods_that_ask_for_a_plan_are_audited_when_asked_for(
    node: TestNode, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    names = [entry["name"] for entry in document(node, tmp_path, capfd, "--all")]

    assert "default/asked container engine" in names


def test_nothing_is_written(node: TestNode, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    document(node, tmp_path, capfd, "--all")

    assert {request.method for request in node.api.requests} == {"GET"}


def test_people_see_each_container_with_its_findings(
    node: TestNode, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, output, _ = audit(node, tmp_path, capfd, "--node-name", NODE)

    assert "containers with devices  2\nwith findings            1\n" in output
    assert "default/far container engine\nmask             0-7 (8 CPUs)\nquota            4 CPUs\n" in output
    assert "remote-cpus      all CPUs of the mask (0-7) are remote from GPU 0000:9d:00.0" in output


def test_an_ended_pod_is_not_audited(node: TestNode, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    node.end_pod("far")

    assert [entry["name"] for entry in document(node, tmp_path, capfd)] == ["default/near container engine"]


def test_a_kubelet_that_does_not_answer_is_one_sentence(
    node: TestNode, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    node.kubelet.stop()

    exit_code, _, complaint = audit(node, tmp_path, capfd, "--node-name", NODE)

    assert exit_code == 1
    assert complaint.startswith("cpuplan audit: the kubelet's PodResources socket ")
    assert complaint.count("\n") == 1


def test_without_a_node_nothing_is_audited(
    node: TestNode, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)

    exit_code, _, complaint = audit(node, tmp_path, capfd)

    assert (exit_code, complaint) == (2, "cpuplan audit: which node? give --node-name, or set NODE_NAME\n")


@pytest.mark.parametrize(
    ("container", "counts", "is_sized"),
    [
        pytest.param({}, {}, False, id="nothing"),
        pytest.param({"env": [{"name": "OMP_NUM_THREADS", "value": "64"}]}, {"OMP_NUM_THREADS": 64}, False, id="value"),
        pytest.param(
            {"env": [{"name": "OMP_NUM_THREADS", "valueFrom": {}}]}, {"OMP_NUM_THREADS": None}, False, id="elsewhere"
        ),
        pytest.param(
            {"env": [{"name": "OMP_NUM_THREADS", "value": "4,3"}]}, {"OMP_NUM_THREADS": None}, False, id="list"
        ),
        pytest.param({"env": [{"name": "PATH", "value": "8"}, 3]}, {}, False, id="other variables"),
        pytest.param({"command": ["/opt/bin/cpuplan", "run", "--"]}, {}, True, id="cpuplan run"),
        pytest.param({"command": ["cpuplan"], "args": ["run", "--", "x"]}, {}, True, id="cpuplan run in two parts"),
        pytest.param({"command": ["cpuplan", "env"]}, {}, False, id="another command of ours"),
    ],
)
def test_what_a_specification_says_of_pools(
    container: dict[str, Any], counts: dict[str, int | None], is_sized: bool
) -> None:
    found = visible_pools(container, ["OMP_NUM_THREADS", "MKL_NUM_THREADS"])

    assert (dict(found.thread_counts), found.is_sized) == (counts, is_sized)
