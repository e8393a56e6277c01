"""What cannot be seen is not known to have changed: a kubelet or a driver that restarts moves and rewrites nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cpuplan.host.root import HostRoot
from tests.agent.node import MakeNode, TestNode
from tests.machines import gpu_uuid

FIRST, SECOND, THIRD = "0001:00:00.0", "0002:00:00.0", "0003:00:00.0"


@pytest.fixture
def node(make_node: MakeNode, tmp_path: Path) -> TestNode:
    """A guest whose firmware does not say where its GPUs are, with a pod on two of them."""
    node = make_node("vm-without-locality")
    shutil.copytree(node.root.proc, tmp_path / "proc", symlinks=True)
    node.root = HostRoot(node.root.sys, tmp_path / "proc", node.root.cgroup)
    node.restart_agent()
    node.add_pod("llm-0", gpus={"engine": [SECOND, FIRST]})
    node.turn()
    assert (node.status("llm-0"), node.plan("llm-0").containers[0][1].confidence) == ("Pinned", "unknown")
    return node


def the_driver_goes(node: TestNode) -> None:
    """And what the agent remembers is old enough to be read anew."""
    (node.root.proc / "driver").rename(node.root.proc / "no-driver")
    node.clock.advance(60)


def the_driver_comes(node: TestNode) -> None:
    (node.root.proc / "no-driver").rename(node.root.proc / "driver")
    node.clock.advance(60)


def test_a_kubelet_that_stops_and_starts_rewrites_nothing(node: TestNode) -> None:
    node.kubelet.stop()
    assert node.turn() == []
    node.kubelet.start()
    assert node.turn() == []


@pytest.mark.parametrize("setting", ["auto", "off", "4"])
def test_a_driver_that_is_updated_moves_and_rewrites_nothing(node: TestNode, setting: str) -> None:
    node.annotate("llm-0", step_thread_core=setting)
    node.turn()
    the_driver_goes(node)
    assert node.turn() == []
    the_driver_comes(node)
    assert node.turn() == []


@pytest.mark.parametrize("workers", ["-", "0", "1,1", "-,0"])
def test_workers_on_some_of_the_devices_stay_too(node: TestNode, workers: str) -> None:
    """Without addresses, the devices among which workers choose come in another order."""
    node.add_pod("llm-1", gpus={"engine": [FIRST, SECOND, THIRD]}, annotations={"cpuplan.dev/workers": workers})
    node.turn()
    node.turn()
    the_driver_goes(node)
    assert node.turn() == []
    the_driver_comes(node)
    assert node.turn() == []


def test_an_agent_that_starts_while_the_driver_is_away_moves_and_rewrites_nothing(node: TestNode) -> None:
    the_driver_goes(node)
    node.restart_agent()
    assert node.turn() == []


def test_the_quota_is_followed_while_the_driver_is_away(node: TestNode) -> None:
    before = node.plan("llm-0").containers[0][1]
    node.run_container("llm-0", "engine", cpuset="0-95")
    node.turn()
    the_driver_goes(node)
    node.run_container("llm-0", "engine", cpuset="0-95", quota="600000 100000")
    node.turn()
    plan = node.plan("llm-0").containers[0][1]
    assert (plan.quota, plan.usable, plan.pinned) == (6.0, 6, before.pinned)


def test_a_newcomer_waits_for_the_driver(node: TestNode) -> None:
    the_driver_goes(node)
    node.add_pod("llm-1", gpus={"engine": [THIRD]})
    node.turn()
    assert node.plan("llm-1").containers[0][1].reason == "device-unknown"
    the_driver_comes(node)
    node.turn()
    assert node.status("llm-1") == "Pinned"


def test_other_devices_are_not_taken_for_the_same_while_the_driver_is_away(node: TestNode) -> None:
    the_driver_goes(node)
    uuids = [gpu_uuid(node.machine, address) for address in (FIRST, THIRD)]
    node.kubelet.set_devices("default", "llm-0", "engine", {"nvidia.com/gpu": uuids})
    node.turn()
    assert node.plan("llm-0").containers[0][1].reason == "device-unknown"
