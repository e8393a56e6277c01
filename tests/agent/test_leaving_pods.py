"""Pods that are deleted and still run: they hold what they pin, and nothing else."""

from __future__ import annotations

import pytest

from tests.agent.node import MakeNode, TestNode

FIRST = "0000:1b:00.0"


@pytest.fixture
def node(make_node: MakeNode) -> TestNode:
    """A server with eight GPUs, a pod on the first, which leaves."""
    node = make_node("h100-server")
    node.add_pod("leaving", gpus={"engine": [FIRST]})
    node.turn()
    leave(node, "leaving")
    return node


def leave(node: TestNode, name: str) -> None:
    node.patch(name, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:30Z"}})


@pytest.mark.parametrize("setting", ["off", "9", "banana", "auto"])
def test_a_change_of_a_leaving_pod_frees_no_core_that_its_threads_still_have(node: TestNode, setting: str) -> None:
    before = node.plan("leaving")
    node.annotate("leaving", step_thread_core=setting)
    node.add_pod("next", gpus={"engine": [FIRST]})

    node.turn()

    assert node.plan("leaving") == before
    assert not node.plan("next").containers[0][1].pinned & before.containers[0][1].pinned


def test_its_cores_are_free_when_it_is_gone(node: TestNode) -> None:
    node.remove_pod("leaving")
    node.add_pod("next", gpus={"engine": [FIRST]})

    node.turn()

    assert node.annotations("next")["cpuplan.dev/step-cpus"] == "engine=0,112"


def test_a_leaving_pod_that_was_never_pinned_takes_no_core_from_others(node: TestNode) -> None:
    """Its plan would never be written."""
    node.remove_pod("leaving")
    node.kubelet.stop()
    node.add_pod("unseen", gpus={"engine": [FIRST]})
    node.turn()
    node.clock.advance(5)
    node.turn()
    assert node.plan("unseen").containers[0][1].reason == "waiting-for-devices"
    leave(node, "unseen")
    node.kubelet.start()
    node.add_pod("next", gpus={"engine": [FIRST]})

    node.turn()

    assert node.annotations("next")["cpuplan.dev/step-cpus"] == "engine=0,112"
    assert node.plan("next").containers[0][1].pool_cpus >= {1, 113}
