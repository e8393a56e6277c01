"""A kubelet's socket, and a whole node around it, that a test may fill."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cpuplan.agent.process import assemble
from cpuplan.host.root import HostRoot
from cpuplan.kube.connection import connect
from tests.agent.node import MakeNode, ManualClock, TestNode, settings_for
from tests.conftest import TreeOf
from tests.fakeapi import FakeApi
from tests.fakekubelet import FakePodResources


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[FakePodResources]:
    """A kubelet that knows no pods."""
    with FakePodResources(tmp_path / "kubelet.sock") as server:
        yield server


@pytest.fixture
def make_node(tmp_path: Path, own_machine: TreeOf, kubelet: FakePodResources) -> Iterator[MakeNode]:
    """Makes a node of one of the project's machines, with an empty cgroup tree of its own."""
    with FakeApi() as api:
        connection = connect(api.write_kubeconfig(tmp_path / "kubeconfig"))
        made: list[TestNode] = []

        def make(machine: str = "h100-server", **settings: object) -> TestNode:
            tree = own_machine(machine)
            root = HostRoot(tree.sys, tree.proc, tmp_path / "cgroup")
            root.cgroup.mkdir()
            (root.cgroup / "cgroup.controllers").write_text("cpuset cpu memory\n")
            clock = ManualClock()
            chosen = settings_for(root, kubelet.socket, **settings)
            assembled = assemble(chosen, connection, monotonic=clock)
            made.append(TestNode(machine, api, kubelet, root, connection, clock, assembled, chosen))
            return made[0]

        yield make
        for node in made:
            node.assembled.kubelet.close()
        connection.close()
