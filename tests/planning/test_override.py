"""Applying an administrator's word on where GPUs are."""

from __future__ import annotations

from collections.abc import Callable

from cpuplan.host.root import HostRoot
from cpuplan.host.sysfs import read_topology
from cpuplan.model.cpulist import parse_cpu_list
from cpuplan.model.topology import GpuPlacement
from cpuplan.planning.override import override_topology

OwnMachine = Callable[[str], HostRoot]


def test_a_gpu_without_a_node_gets_the_one_it_is_placed_on_and_the_difference_is_told(own_machine: OwnMachine) -> None:
    topology = read_topology(own_machine("vm-without-locality"))
    address = topology.functions[-1].address
    result = override_topology(topology, (GpuPlacement(address, 0, parse_cpu_list("0-7")),))
    moved = result.topology.function(address)
    assert moved is not None
    assert (moved.node, moved.local) == ("0", parse_cpu_list("0-7"))
    (difference,) = result.differences
    assert difference.sentence.startswith(f"{address}: sysfs says no NUMA node")
    assert difference.sentence.endswith("the override says NUMA node 0 with CPUs 0-7")
    assert str(difference.sources[0]) == f"/sys/bus/pci/devices/{address}/numa_node: -1"


def test_a_placement_without_cpus_takes_those_of_its_node(own_machine: OwnMachine) -> None:
    topology = read_topology(own_machine("h100-server"))
    moved = override_topology(topology, (GpuPlacement("0000:1b:00.0", 1),)).topology.function("0000:1b:00.0")
    assert moved is not None
    assert moved.local == parse_cpu_list("56-111,168-223")


def test_a_placement_that_says_what_sysfs_says_changes_and_tells_nothing(own_machine: OwnMachine) -> None:
    topology = read_topology(own_machine("h100-server"))
    result = override_topology(topology, (GpuPlacement("0000:1b:00.0", 0),))
    assert result.topology == topology
    assert result.differences == ()


def test_a_placement_of_a_gpu_that_the_host_has_not_is_told(own_machine: OwnMachine) -> None:
    topology = read_topology(own_machine("h100-server"))
    result = override_topology(topology, (GpuPlacement("0000:ff:00.0", 0),))
    assert result.topology == topology
    (difference,) = result.differences
    assert difference.sentence == "0000:ff:00.0: the override places it on NUMA node 0, this host has no such device"
    assert list(map(str, difference.sources)) == ["/sys/bus/pci/devices/0000:ff:00.0/class: missing or malformed"]
