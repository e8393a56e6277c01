"""Which agents' pods run, and what the others wait for."""

from __future__ import annotations

import pytest

from cpuplan.controller.startup import AgentPod, agent_pods
from tests.controller.pods import Json


def agent(
    name: str, *, node: str = "gpu-1", metadata: Json | None = None, spec: Json | None = None, **status: object
) -> Json:
    """An agent's pod as the API server sends it."""
    return {
        "metadata": {"namespace": "cpuplan", "name": name, **(metadata or {})},
        "spec": {"nodeName": node} if spec is None else spec,
        "status": status,
    }


def container(state: Json) -> list[Json]:
    """The status of a container in that state."""
    return [{"name": "agent", "state": state}]


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        ({"phase": "Running", "containerStatuses": container({"running": {}})}, ""),
        ({"phase": "Running"}, ""),
        ({"phase": "Pending"}, "Pending"),
        (
            {"phase": "Pending", "containerStatuses": container({"waiting": {"reason": "ErrImagePull"}})},
            "Pending, ImagePullBackOff",
        ),
        (
            {"phase": "Running", "containerStatuses": container({"waiting": {"reason": "CrashLoopBackOff"}})},
            "Running, CrashLoopBackOff",
        ),
        (
            {"phase": "Pending", "initContainerStatuses": container({"waiting": {}})},
            "Pending, waiting",
        ),
        ({"phase": "Failed", "reason": "Evicted"}, "Failed, Evicted"),
        ({}, "Unknown"),
    ],
)
def test_the_state_of_an_agents_pod_is_its_phase_and_what_it_waits_for(status: Json, trouble: str) -> None:
    assert agent_pods(iter([agent("a", **status)])) == {"gpu-1": AgentPod("cpuplan", "a", trouble)}


def test_an_agents_pod_that_no_scheduler_takes_is_known_by_the_node_it_was_made_for() -> None:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-2"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    content = agent("a", spec={"affinity": {"nodeAffinity": required}}, phase="Pending", conditions=conditions)
    assert agent_pods(iter([content])) == {"gpu-2": AgentPod("cpuplan", "a", "Pending, Unschedulable")}


def test_an_agents_pod_that_is_being_deleted_is_none() -> None:
    assert agent_pods(iter([agent("a", metadata={"deletionTimestamp": "x"}, phase="Running")])) == {}


@pytest.mark.parametrize("order", [("old", "new"), ("new", "old")])
def test_of_two_agents_pods_on_a_node_the_running_one_counts(order: tuple[str, str]) -> None:
    phases = {"old": "Failed", "new": "Running"}
    pods = agent_pods(iter([agent(name, phase=phases[name]) for name in order]))
    assert pods == {"gpu-1": AgentPod("cpuplan", "new", "")}
