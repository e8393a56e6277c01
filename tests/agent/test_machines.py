"""Every machine as a node: the agent's own path from files to requests, and the ledger behind it."""

from __future__ import annotations

from typing import Any

import pytest

from cpuplan.agent.claims import NotAllocated
from cpuplan.agent.containers import NodeState, requests_of
from cpuplan.agent.nodefacts import NodeFacts
from cpuplan.agent.planned import DeviceResources
from cpuplan.agent.podresources import AssignedDevice, ContainerAssignment, PodAssignment
from cpuplan.host.devices import read_nvidia_gpus
from cpuplan.host.root import HostRoot
from cpuplan.host.sysfs import read_topology
from cpuplan.inprocess.current import deployment_plan
from cpuplan.kube.pods import parse_pod
from cpuplan.model.podplan import ContainerPlan
from cpuplan.model.topology import HostTopology
from cpuplan.planning.ledger import plan_node
from tests.cases import each_case, names_below
from tests.conftest import TreeOf
from tests.machines import machine_names

RESOURCE = "nvidia.com/gpu"


def first_gpus(topology: HostTopology) -> list[str]:
    """The addresses of up to two GPUs of the kind of the machine's first."""
    first = [function.address for function in topology.functions[:1]]
    return [gpu.address for gpu in topology.gpus_like(first)][:2]


def device_id(root: HostRoot, address: str) -> str:
    """The id a device plugin has for the GPU: NVIDIA's UUID, else the address, as AMD's plugin does."""
    uuids = {gpu.address: gpu.uuid for gpu in read_nvidia_gpus(root)}
    return uuids.get(address) or address


def planned_by_the_agent(root: HostRoot, addresses: list[str]) -> ContainerPlan:
    """The plan of one pod with these GPUs, alone on the node."""
    limits: dict[str, Any] = {RESOURCE: len(addresses)} if addresses else {}
    pod = parse_pod(
        {
            "metadata": {
                "namespace": "default",
                "name": "llm-0",
                "uid": "u",
                "annotations": {"step_thread_core": "auto"},
            },
            "spec": {"containers": [{"name": "engine", "resources": {"limits": limits}}]},
        }
    )
    devices = tuple(AssignedDevice(RESOURCE, device_id(root, address)) for address in addresses)
    assignment = PodAssignment(frozenset(), {"engine": ContainerAssignment(devices, frozenset())})
    facts = NodeFacts(root, claimed=lambda *_: NotAllocated("no claims here"))
    state = NodeState(facts.cpus(), facts.boot_id, {("default", "llm-0"): (assignment,)}, DeviceResources())
    asked = requests_of(pod, facts, state)
    (plan,) = plan_node(asked.requests, facts.topology(addresses)).values()
    return plan


def check_machine(root: HostRoot) -> None:
    """The agent's plan is the deployment plan of the same mask, devices included."""
    topology = read_topology(root)
    addresses = first_gpus(topology)
    plan = planned_by_the_agent(root, addresses)
    assert plan.mask
    assert [worker.address for worker in plan.workers] == addresses
    alone = deployment_plan(
        "auto",
        addresses,
        mask=plan.mask,
        usable=plan.usable,
        pci_root=root.pci_folder,
        siblings=topology.siblings_of,
    )
    pinned = tuple(step.cpus for step in alone.workers if step is not None)
    assert tuple(worker.cpus for worker in plan.workers if worker.cpus) == pinned
    assert plan.result == alone.result
    assert plan.reason == (alone.reason if addresses else "no-device")


@pytest.mark.parametrize("name", machine_names())
def test_each_machine_of_ours_is_a_node(own_machine: TreeOf, name: str) -> None:
    check_machine(own_machine(name))


@each_case("name", names_below("machines"))
def test_each_real_machine_is_a_node(machine: TreeOf, name: str) -> None:
    check_machine(machine(name))
