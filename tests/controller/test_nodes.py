"""What is known of nodes: listed, asked for when a plan contradicts, and done without where it may not be asked."""

import pytest

from cpuplan.controller.nodes import (
    AGENTS_KNOWN_SECONDS,
    ASK_AGAIN_SECONDS,
    MOST_QUESTIONS_PER_PASS,
    NodeKnowledge,
)
from cpuplan.controller.observed import ObservedPod, observed_pod
from cpuplan.controller.startup import AgentPod
from cpuplan.kube.client import KubeClient
from cpuplan.kube.errors import KubeError
from tests.controller.pods import BOOT, planned, pod, pod_plan
from tests.fakeapi import FakeApi

NODES = "/api/v1/nodes"


@pytest.fixture
def nodes(client: KubeClient) -> NodeKnowledge:
    """Nothing known yet."""
    return NodeKnowledge(client, namespace="cpuplan", agent_selector="app=agent")


def runs(api: FakeApi, node: str, boot_id: str = BOOT) -> None:
    """The node exists and runs that boot."""
    api.put(f"{NODES}/{node}", {"status": {"nodeInfo": {"bootID": boot_id}}})


def on(node: str) -> ObservedPod:
    """A planned pod there."""
    return observed_pod(planned("llm-0", node=node))


def test_all_nodes_are_listed_in_pages(api: FakeApi, nodes: NodeKnowledge) -> None:
    runs(api, "gpu-1")
    nodes.list_all()
    assert nodes.boot_ids == {"gpu-1": BOOT}
    assert [request.query["limit"] for request in api.requests_of("GET", NODES)] == ["100"]


def test_nodes_that_agree_with_their_plans_are_not_asked_for_again(api: FakeApi, nodes: NodeKnowledge) -> None:
    runs(api, "gpu-1")
    nodes.list_all()
    nodes.ask_about([on("gpu-1")], 0)
    assert len(api.requests_of("GET")) == 1


def test_a_new_node_is_asked_for_before_it_is_called_gone(api: FakeApi, nodes: NodeKnowledge) -> None:
    nodes.list_all()
    runs(api, "gpu-1")
    nodes.ask_about([on("gpu-1")], 0)
    assert not nodes.is_gone("gpu-1")


def test_a_deleted_node_is_gone_until_it_is_there_again(api: FakeApi, nodes: NodeKnowledge) -> None:
    nodes.ask_about([on("gpu-1")], 0)
    assert nodes.is_gone("gpu-1")
    runs(api, "gpu-1")
    nodes.ask_about([on("gpu-1")], ASK_AGAIN_SECONDS)
    assert not nodes.is_gone("gpu-1")


def test_a_listing_forgets_that_a_node_was_gone(api: FakeApi, nodes: NodeKnowledge) -> None:
    nodes.ask_about([on("gpu-1")], 0)
    runs(api, "gpu-1")
    nodes.list_all()
    assert not nodes.is_gone("gpu-1")


def test_a_plan_of_another_boot_has_its_node_asked_for(api: FakeApi, nodes: NodeKnowledge) -> None:
    runs(api, "gpu-1", "before")
    nodes.list_all()
    runs(api, "gpu-1", BOOT)
    nodes.ask_about([on("gpu-1")], 0)
    assert nodes.boot_ids == {"gpu-1": BOOT}


def test_a_node_that_goes_on_contradicting_is_not_asked_for_all_the_time(api: FakeApi, nodes: NodeKnowledge) -> None:
    runs(api, "gpu-1", "after")
    nodes.ask_about([on("gpu-1")], 0)
    nodes.ask_about([on("gpu-1")], ASK_AGAIN_SECONDS - 1)
    assert len(api.requests_of("GET")) == 1
    nodes.ask_about([on("gpu-1")], ASK_AGAIN_SECONDS)
    assert len(api.requests_of("GET")) == 2


def test_nothing_is_known_of_a_node_that_a_plan_contradicts_until_it_was_asked_for(
    api: FakeApi, nodes: NodeKnowledge
) -> None:
    """The plan may be the newer of the two: its node has restarted since it was listed."""
    runs(api, "gpu-1", "before")
    nodes.list_all()
    runs(api, "gpu-1", BOOT)
    api.fail(500, method="GET")
    with pytest.raises(KubeError):
        nodes.ask_about([on("gpu-1")], 0)
    assert nodes.boot_ids == {}
    nodes.ask_about([on("gpu-1")], 1)
    assert nodes.boot_ids == {"gpu-1": BOOT}


def test_of_many_nodes_that_restarted_those_that_have_to_wait_are_unknown(api: FakeApi, nodes: NodeKnowledge) -> None:
    names = [f"gpu-{number:02}" for number in range(MOST_QUESTIONS_PER_PASS + 2)]
    for name in names:
        runs(api, name, "before")
    nodes.list_all()
    for name in names:
        runs(api, name, BOOT)
    nodes.ask_about([on(name) for name in names], 0)
    assert nodes.boot_ids == dict.fromkeys(names[:MOST_QUESTIONS_PER_PASS], BOOT)
    nodes.ask_about([on(name) for name in names], 1)
    assert nodes.boot_ids == dict.fromkeys(names, BOOT)


def test_a_node_that_says_no_boot_contradicts_nothing(api: FakeApi, nodes: NodeKnowledge) -> None:
    api.put(f"{NODES}/gpu-1", {"status": {}})
    nodes.list_all()
    nodes.ask_about([on("gpu-1"), observed_pod(pod("b", plan=pod_plan("b", boot_id="other")))], 0)
    assert len(api.requests_of("GET")) == 1


def test_pods_that_are_nowhere_need_no_node(api: FakeApi, nodes: NodeKnowledge) -> None:
    nodes.ask_about([observed_pod(pod("llm-0", node=""))], 0)
    assert api.requests_of("GET") == []


@pytest.mark.parametrize("listed_first", [True, False])
def test_without_the_right_to_read_nodes_none_is_gone_and_nobody_asks_again(
    api: FakeApi, nodes: NodeKnowledge, caplog: pytest.LogCaptureFixture, listed_first: bool
) -> None:
    api.fail(403, times=100, path_part=NODES)
    (nodes.list_all if listed_first else lambda: nodes.ask_about([on("gpu-1")], 0))()
    nodes.list_all()
    nodes.ask_about([on("gpu-1")], 100)
    assert not nodes.is_gone("gpu-1")
    assert len(api.requests_of("GET")) == 1
    assert "restarted and deleted nodes go unnoticed: no right to read nodes" in caplog.text


def test_agents_are_pods_of_the_release_with_its_labels(api: FakeApi, nodes: NodeKnowledge) -> None:
    path = "/api/v1/namespaces/cpuplan/pods"
    running = {"phase": "Running"}
    for name, node, labels in (("a", "gpu-1", {"app": "agent"}), ("b", "gpu-2", {})):
        api.put(f"{path}/{name}", {"metadata": {"labels": labels}, "spec": {"nodeName": node}, "status": running})
    assert nodes.agents(0) == {"gpu-1": AgentPod("cpuplan", "a", "")}


def test_agents_are_asked_for_again_where_no_answer_came(api: FakeApi, nodes: NodeKnowledge) -> None:
    api.fail(500, method="GET")
    with pytest.raises(KubeError):
        nodes.agents(0)
    assert nodes.agents(1) == {}


def test_agents_are_asked_for_once_in_a_while(api: FakeApi, nodes: NodeKnowledge) -> None:
    nodes.agents(0)
    nodes.agents(AGENTS_KNOWN_SECONDS - 1)
    assert len(api.requests_of("GET")) == 1
    nodes.agents(AGENTS_KNOWN_SECONDS)
    assert len(api.requests_of("GET")) == 2
