"""Topologies read from sysfs trees."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cpuplan.host.root import HostRoot
from cpuplan.host.sysfs import host_gpus, read_online, read_siblings, read_topology
from cpuplan.model.cpulist import format_cpu_list
from cpuplan.model.errors import HostReadError
from tests.cases import each_case, names_below
from tests.machines import describe, machine_names

TreeOf = Callable[[str], HostRoot]


def write(root: HostRoot, path: str, text: str) -> None:
    """One file below the sysfs of a tree."""
    target = root.sys / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


@pytest.fixture
def tree(tmp_path: Path) -> HostRoot:
    """A sysfs with four CPUs, two cores and nothing else."""
    root = HostRoot.at(tmp_path)
    write(root, "devices/system/cpu/online", "0-3\n")
    for cpu, siblings in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        write(root, f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", f"{siblings}\n")
    return root


@pytest.mark.parametrize("name", machine_names())
def test_an_own_machine_is_read_as_it_is_described(name: str, own_machine: TreeOf) -> None:
    described, topology = describe(name), read_topology(own_machine(name))
    assert topology.online == described.online
    assert topology.isolated == described.isolated
    assert set(described.gpu_addresses) <= {function.address for function in topology.functions}
    assert {frozenset(core) & described.online for block in described.blocks for core in block.cores()} == set(
        topology.siblings.values()
    )


@each_case("name", names_below("machines"))
def test_every_real_machine_is_read(name: str, machine: TreeOf) -> None:
    topology = read_topology(machine(name))
    assert topology.online
    assert topology.siblings.keys() == topology.online
    assert all(cpu in siblings for cpu, siblings in topology.siblings.items())


def test_absent_files_are_unknown_and_no_error(tree: HostRoot) -> None:
    topology = read_topology(tree)
    assert (topology.functions, topology.nodes, topology.isolated) == ((), (), frozenset())


def test_a_folder_that_is_no_sysfs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostReadError, match="is no readable sysfs"):
        read_topology(HostRoot.at(tmp_path))


@pytest.mark.parametrize("text", ["", "banana", "0-", "\x00", "99999999"])
def test_a_malformed_sibling_list_makes_a_core_of_one(tree: HostRoot, text: str) -> None:
    write(tree, "devices/system/cpu/cpu1/topology/thread_siblings_list", text)
    assert read_siblings(1, tree) == {1}


def test_a_cpu_belongs_to_its_own_core_whatever_its_list_says(tree: HostRoot) -> None:
    write(tree, "devices/system/cpu/cpu1/topology/thread_siblings_list", "3")
    assert read_siblings(1, tree) == {1, 3}


def test_without_the_list_of_online_cpus_their_folders_are_counted(tree: HostRoot) -> None:
    (tree.cpu_folder / "online").unlink()
    write(tree, "devices/system/cpu/cpu2/online", "0\n")
    write(tree, "devices/system/cpu/cpu3/online", "1\n")
    write(tree, "devices/system/cpu/cpufreq/boost", "1\n")
    assert read_online(tree) == {0, 1, 3}


def test_offline_cpus_are_no_part_of_the_topology(own_machine: TreeOf) -> None:
    topology = read_topology(own_machine("worn-server"))
    assert (topology.siblings.get(3), topology.siblings[19]) == (None, {19})


def test_a_memory_only_node_is_a_node_without_cpus(own_machine: TreeOf) -> None:
    nodes = read_topology(own_machine("gb200-tray")).nodes
    assert (len(nodes), [node.node_id for node in nodes if node.cpus], nodes[2].cpus) == (34, [0, 1], frozenset())


def test_distances_come_with_their_node(own_machine: TreeOf) -> None:
    assert read_topology(own_machine("h100-server")).nodes[1].distances == (32, 10)


@pytest.mark.parametrize("text", ["10 ²", "10 banana", "10 " + "9" * 5000, "10 -1"])
def test_a_malformed_distance_is_left_out(tree: HostRoot, text: str) -> None:
    write(tree, "devices/system/node/node0/cpulist", "0-3")
    write(tree, "devices/system/node/node0/distance", text)
    assert read_topology(tree).nodes[0].distances == (10,)


def function(tree: HostRoot, address: str, vendor: str, device_class: str, **files: str) -> None:
    """A PCI function with these files."""
    for name, text in {"vendor": vendor, "class": device_class, **files}.items():
        write(tree, f"bus/pci/devices/{address}/{name}", f"{text}\n")


def test_a_function_of_an_unusual_class_is_read_where_it_is_asked_for(tree: HostRoot) -> None:
    function(tree, "0000:01:00.0", "0x1d0f", "0x088000", numa_node="0", local_cpulist="0-3")
    function(tree, "0000:02:00.0", "0x1d0f", "0x088000", numa_node="0", local_cpulist="0-3")
    function(tree, "0000:03:00.0", "0xabcd", "0x088000", numa_node="0", local_cpulist="0-3")
    assert read_topology(tree).functions == ()
    asked = read_topology(tree, ["0000:02:00.0"]).functions
    assert [found.address for found in asked] == ["0000:01:00.0", "0000:02:00.0"]


def test_a_function_without_vendor_or_class_is_no_gpu(tree: HostRoot) -> None:
    write(tree, "bus/pci/devices/0000:01:00.0/class", "0x030200")
    write(tree, "bus/pci/devices/0000:02:00.0/vendor", "0x10de")
    assert read_topology(tree, ["0000:01:00.0", "0000:02:00.0"]).functions == ()


def test_host_gpus_are_of_one_kind_and_in_address_order(own_machine: TreeOf) -> None:
    gpus = host_gpus("00000000:C3:00.0", own_machine("h100-server").pci_folder)
    assert [gpu.address[5:7] for gpu in gpus] == ["1b", "43", "52", "61", "9d", "c3", "d1", "df"]
    address, node, local = gpus[0]
    assert (address, node, format_cpu_list(local or ())) == ("0000:1b:00.0", "0", "0-55,112-167")


def test_a_board_vga_is_no_gpu_of_the_deployment(own_machine: TreeOf) -> None:
    gpus = host_gpus("0000:03:00.0", own_machine("h100-server").pci_folder)
    assert [gpu.address for gpu in gpus] == ["0000:03:00.0"]


@pytest.mark.parametrize("like", [None, "", "0000:ff:00.0", "banana", "0000:18:00.0/.."])
def test_a_device_that_sysfs_does_not_know_has_no_kind(like: str | None, own_machine: TreeOf) -> None:
    assert host_gpus(like, own_machine("h100-server").pci_folder) == []


def test_a_host_without_pci_has_no_gpus(tmp_path: Path) -> None:
    assert host_gpus("0000:1b:00.0", tmp_path) == []


def test_a_missing_node_and_a_malformed_local_list_are_unknown(tree: HostRoot) -> None:
    function(tree, "0000:01:00.0", "0x10de", "0x030200", local_cpulist="x")
    assert host_gpus("0000:01:00.0", tree.pci_folder) == [("0000:01:00.0", None, None)]
