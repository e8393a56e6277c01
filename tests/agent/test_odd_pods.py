"""Odd pods never stop the agent, and never keep the others from their plans."""

from __future__ import annotations

from typing import Any

import pytest

from cpuplan.agent import loop
from cpuplan.agent.containers import requests_of
from cpuplan.kube.pods import Pod
from tests.agent.node import MakeNode, TestNode

FIRST = "0000:1b:00.0"
ODD: dict[str, dict[str, Any]] = {
    "no containers": {"spec": {"containers": []}},
    "no spec": {"spec": None},
    "containers no list": {"spec": {"containers": "x"}},
    "a container without a name": {"spec": {"containers": [{}]}},
    "limits no mapping": {"spec": {"containers": [{"name": "a", "resources": {"limits": ["x"]}}]}},
    "more devices than exist": {
        "spec": {"containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": "9999999999"}}}]}
    },
    "a status that lies": {
        "status": {"containerStatuses": [{"name": "engine", "containerID": "../../..", "state": {"running": 1}}]}
    },
    "many containers": {"spec": {"containers": [{"name": f"c{number}"} for number in range(60)]}},
    "the same name twice": {"spec": {"containers": [{"name": "a"}, {"name": "a"}]}},
}


@pytest.fixture
def node(make_node: MakeNode) -> TestNode:
    """A server with eight GPUs."""
    return make_node("h100-server")


@pytest.mark.parametrize("content", ODD.values(), ids=ODD.keys())
def test_an_odd_pod_is_borne_and_the_next_one_planned(node: TestNode, content: dict[str, Any]) -> None:
    node.add_pod("odd")
    node.patch("odd", content)
    if "spec" in content:
        node.patch("odd", {"spec": {"nodeName": "n1"}})
    node.add_pod("next", gpus={"engine": [FIRST]})
    node.turn()
    assert node.status("next") == "Pinned"
    assert node.metric("replan_errors_total") == 0


@pytest.mark.parametrize("setting", ["9" * 200_000, "auto" * 50_000], ids=["digits", "words"])
def test_an_endless_setting_is_an_error_that_does_not_make_the_pod_grow(node: TestNode, setting: str) -> None:
    node.add_pod("llm-0", setting=setting, gpus={"engine": [FIRST]})
    node.turn()
    assert node.status("llm-0") == "Error"
    ours = {key: text for key, text in node.annotations("llm-0").items() if key != "step_thread_core"}
    assert sum(map(len, ours.values())) < 4096
    assert node.turn() == []


@pytest.fixture
def poisoned(node: TestNode, monkeypatch: pytest.MonkeyPatch) -> TestNode:
    """The server with a planned pod `poison` that raises whenever it is looked at from now on."""
    node.add_pod("poison", gpus={"engine": [FIRST]})
    node.turn()
    real = requests_of

    def failing(pod: Pod, *rest: Any) -> Any:
        if pod.name == "poison":
            raise ZeroDivisionError("poison")
        return real(pod, *rest)

    monkeypatch.setattr(loop, "requests_of", failing)
    return node


def test_a_pod_that_raises_stops_nobody_and_is_counted(poisoned: TestNode) -> None:
    poisoned.add_pod("next", gpus={"engine": ["0000:43:00.0"]})
    poisoned.turn()
    assert poisoned.status("next") == "Pinned"
    assert poisoned.metric("replan_errors_total") == 1


def test_a_pod_that_raises_keeps_its_plan_and_its_cores(poisoned: TestNode) -> None:
    before = poisoned.plan("poison")
    poisoned.add_pod("next", gpus={"engine": [FIRST]})
    poisoned.turn()
    assert poisoned.plan("poison") == before
    assert not poisoned.plan("next").containers[0][1].pinned & before.containers[0][1].pinned


def test_a_turn_that_fails_is_not_ready_and_the_next_one_recovers(
    node: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.watch._list()
    agent = node.assembled.agent
    with monkeypatch.context() as broken:
        broken.setattr(loop, "plan_node", lambda *_: 1 / 0)
        broken.setattr(agent, "_wait_for_turn", iter([True, False]).__next__)
        agent.run()
    assert agent.trouble_ready() == "planning failed: ZeroDivisionError: division by zero"
    node.turn()
    assert agent.trouble_ready() == ""
