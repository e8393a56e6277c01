"""`cpuplan explain POD` and a running agent, with an API server between them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from cpuplan.cli.main import main
from cpuplan.kube.paths import pod_path
from cpuplan.planning.searches import Fate
from tests.agent.node import MakeNode, TestNode
from tests.agent.test_process import LIMIT_SECONDS, Process, running_agent
from tests.fakeapi import FakeApi, Request
from tests.fakeapi.serving import Answer as ApiAnswer
from tests.machines import gpu_uuid
from tests.waiting import until

PAGE = (Path(__file__).parents[2] / "docs" / "explain.md").read_text(encoding="utf-8")
FIRST = "0000:1b:00.0"
AGENT = pod_path("cpuplan", "cpuplan-agent-x7")
LABELS = {"app.kubernetes.io/name": "cpuplan", "app.kubernetes.io/component": "agent"}

Explain = Callable[..., tuple[int, str]]


def put_agent(api: FakeApi, process: Process) -> None:
    """The agent's pod, whose pages are those of the process."""
    api.put(AGENT, {"metadata": {"labels": LABELS}, "spec": {"nodeName": "n1", "containers": []}})

    def forward(request: Request) -> ApiAnswer:
        status, text = process.get(f"/explain?{urlencode(request.query)}")
        return ApiAnswer(status, text.encode())

    api.serve_page(f"{AGENT}:9465", "explain", forward)


@pytest.fixture
def node(make_node: MakeNode, tmp_path: Path) -> Iterator[TestNode]:
    """A server with a running agent that can be asked through the API server."""
    node = make_node("h100-server")
    with running_agent(node, tmp_path) as process:
        put_agent(node.api, process)
        process.wait_for_line("the kubelet answers")
        yield node


@pytest.fixture
def explain(node: TestNode, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Explain:
    """Runs `cpuplan explain`; its exit code, and what it said on either stream."""
    kubeconfig = str(node.api.write_kubeconfig(tmp_path / "kubeconfig"))

    def run(*words: str) -> tuple[int, str]:
        capfd.readouterr()
        exit_code = main(["explain", "--kubeconfig", kubeconfig, *words])
        return exit_code, "".join(capfd.readouterr())

    return run


def test_a_planned_pod_is_explained_with_what_only_its_agent_knows(node: TestNode, explain: Explain) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.run_container("llm-0", "engine", cpuset="0-111", quota="400000 100000")
    node.api.wait_until(lambda: "cpuplan.dev/plan" in node.annotations("llm-0"), limit_seconds=LIMIT_SECONDS)

    def current() -> dict[str, object] | None:
        document = json.loads(explain("llm-0", "-o", "json")[1])
        is_current = document["agent"] is not None and document["agent"]["generation"] == document["generation"]
        return document if is_current and not document["agent"]["notes"] else None

    until(lambda: current() is not None, limit_seconds=LIMIT_SECONDS)
    exit_code, said = explain("llm-0")
    assert exit_code == 0
    assert "its quota is 4 CPUs, the tightest limit from its cgroup up" in said
    assert "/cpu.max: 400000 100000" in said
    assert "112-223: they are not in the mask: its mask is the cpuset of its running cgroup" in said


def test_the_page_of_the_documentation_shows_what_is_printed(node: TestNode, explain: Explain) -> None:
    node.add_pod("llm-1", gpus={"engine": [FIRST]})
    node.add_pod("llm-0", gpus={"engine": [FIRST]}, created="2026-02-01T00:00:00Z")
    for name in ("llm-1", "llm-0"):
        node.run_container(name, "engine", cpuset="0-63,112-175", quota="1600000 100000")
    wanted = "from plan of default/llm-1 container engine: 0,55,112"
    until(lambda: wanted in explain("llm-0")[1], limit_seconds=LIMIT_SECONDS)
    printed = explain("llm-0")[1].replace(gpu_uuid("h100-server", FIRST), "GPU-422b9bdf-…")
    printed = re.sub(r"kubepods/\S+/", "kubepods/…/", printed)
    shown = PAGE.split("    Reasons\n")[1].split("\n\n|")[0]
    lines = [" ".join(line.split()) for line in shown.splitlines() if line.strip()]
    assert len(lines) > 20
    assert [line for line in lines if line not in [" ".join(line.split()) for line in printed.splitlines()]] == []


def test_the_page_of_the_documentation_has_every_fate() -> None:
    assert [fate for fate in Fate if f"`{fate}`" not in PAGE.split("| fate |")[1].split("\n\n")[0]] == []


def test_a_pod_whose_plan_is_refused_by_the_api_server_is_explained_with_the_refusal(
    node: TestNode, explain: Explain
) -> None:
    node.api.fail(403, times=1000, method="PATCH")
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    until(lambda: "could not be written" in explain("llm-0")[1], limit_seconds=LIMIT_SECONDS)
    exit_code, said = explain("llm-0")
    assert exit_code == 0
    assert "plan   none on the pod" in said
    assert "says   the plan could not be written on the pod, it is tried again: PATCH" in said
    assert "step threads on 0,112, result threads on CPU 55" in said
