"""A plan in the words of vLLM, SGLang, torchrun, taskset and OpenMP, on machines that know their nodes."""

from __future__ import annotations

from dataclasses import replace

from cpuplan.host.sysfs import read_topology
from cpuplan.inprocess.launchers import (
    DevicePlace,
    device_places,
    openmp_variables,
    sglang_arguments,
    taskset_arguments,
    torchrun_arguments,
    vllm_arguments,
)
from cpuplan.model.cpulist import parse_cpu_list
from cpuplan.model.topology import GpuPlacement
from cpuplan.planning.override import override_topology
from tests.conftest import TreeOf
from tests.podvolume import plan_of_pod


def places(
    own_machine: TreeOf, machine: str, gpus: tuple[int, ...], *, setting: str = "auto"
) -> tuple[DevicePlace, ...]:
    root = own_machine(machine)
    plan = plan_of_pod(machine, root, gpus=gpus, setting=setting).containers[0][1]
    return device_places(plan, read_topology(root))


def test_vllm_binds_each_gpus_worker_near_its_gpu_and_off_the_others_cores(own_machine: TreeOf) -> None:
    """The result CPU is 55; each list has the worker's own core and no other pinned CPU."""
    assert vllm_arguments(places(own_machine, "h100-server", (0, 4))) == [
        "--numa-bind",
        "--numa-bind-nodes",
        "0",
        "1",
        "--numa-bind-cpus",
        "0-54,112-166",
        "56-111,168-223",
    ]


def test_sglang_gets_the_node_of_each_gpu(own_machine: TreeOf) -> None:
    assert sglang_arguments(places(own_machine, "h100-server", (0, 1, 4))) == ["--numa-node", "0", "0", "1"]


def test_torchrun_gets_its_process_count_and_binding(own_machine: TreeOf) -> None:
    assert torchrun_arguments(places(own_machine, "h100-server", (0, 1))) == [
        "--nproc-per-node=2",
        "--numa-binding=node",
    ]


def test_gpus_are_listed_in_the_order_of_their_addresses(own_machine: TreeOf) -> None:
    assert [place.address for place in places(own_machine, "h100-server", (4, 0))] == ["0000:1b:00.0", "0000:9d:00.0"]


def test_two_workers_on_one_gpu_are_one_gpu(own_machine: TreeOf) -> None:
    (place,) = places(own_machine, "h100-server", (0, 0))

    assert parse_cpu_list("0,4,112,116") <= place.cpus


def test_a_node_that_the_firmware_does_not_name_is_given_to_nobody(own_machine: TreeOf) -> None:
    found = places(own_machine, "vm-without-locality", (0, 1))

    assert [place.node for place in found] == [None, None]
    assert found[0].doubt == f"the firmware names no NUMA node for {found[0].address}"
    assert (vllm_arguments(found), sglang_arguments(found)) == ([], [])
    assert torchrun_arguments(found) == ["--nproc-per-node=2"]


def test_a_node_without_cpus_is_given_to_nobody(own_machine: TreeOf) -> None:
    """Such a node is the memory of a GPU: a worker bound to it would have no CPU, and its memory on the GPU."""
    found = places(own_machine, "gb200-memory-nodes", (0, 3))

    assert [place.node for place in found] == [None, None]
    assert [place.doubt for place in found] == [
        "NUMA node 2, where sysfs has 0008:01:00.0, has no CPUs",
        "NUMA node 26, where sysfs has 0019:01:00.0, has no CPUs",
    ]
    assert (vllm_arguments(found), sglang_arguments(found)) == ([], [])
    assert torchrun_arguments(found) == ["--nproc-per-node=2"]


def test_a_node_that_sysfs_does_not_describe_is_given_to_nobody(own_machine: TreeOf) -> None:
    root = own_machine("h100-server")
    plan = plan_of_pod("h100-server", root).containers[0][1]

    (place,) = device_places(plan, replace(read_topology(root), nodes=()))

    assert (place.node, place.doubt) == (None, "sysfs has 0000:1b:00.0 on NUMA node 0 and lists no such node")


def test_a_device_that_sysfs_does_not_have_has_no_node(own_machine: TreeOf) -> None:
    root = own_machine("h100-server")
    plan = plan_of_pod("h100-server", root).containers[0][1]

    (place,) = device_places(plan, replace(read_topology(root), functions=()))

    assert (place.node, place.doubt) == (None, "sysfs has no 0000:1b:00.0")
    assert place.cpus == plan.pool_cpus | plan.workers[0].cpus


def test_a_node_outside_the_mask_is_given_to_nobody(own_machine: TreeOf) -> None:
    """Both SGLang and torchrun bind to the node's CPUs that the process may use, and there are none."""
    root = own_machine("h100-server")
    alone = plan_of_pod("h100-server", root, gpus=(0,), setting="60").containers[0][1]
    far = replace(alone, mask=parse_cpu_list("56-111"), pool_cpus=parse_cpu_list("56-59,61-110"))

    (place,) = device_places(far, read_topology(root))

    assert place.doubt == "the mask has no CPU of NUMA node 0, where sysfs has 0000:1b:00.0"


def test_an_overridden_gpu_is_bound_by_nobody_to_the_node_of_sysfs(own_machine: TreeOf) -> None:
    """The plan does not carry the override; that its pins lie elsewhere shows that sysfs was not believed."""
    root = own_machine("h100-server")
    topology = read_topology(root)
    believed = override_topology(topology, (GpuPlacement("0000:1b:00.0", 1),)).topology
    plan = plan_of_pod("h100-server", root, topology=believed).containers[0][1]

    (place,) = device_places(plan, topology)

    assert place.doubt == "the plan puts the step threads of 0000:1b:00.0 on 56,168, sysfs it on NUMA node 0"
    assert sglang_arguments([place]) == []


def test_a_cpu_number_leaves_each_gpu_on_its_own_node(own_machine: TreeOf) -> None:
    """Whoever gives a number has chosen the cores, wherever the GPU is."""
    found = places(own_machine, "h100-server", (0, 4), setting="60")

    assert sglang_arguments(found) == ["--numa-node", "0", "1"]
    assert vllm_arguments(found)[5:] == ["0-55,60,112-167,172", "56-59,61-110,168-171,173-222"]


def test_one_device_in_doubt_is_enough_to_leave_all_out(own_machine: TreeOf) -> None:
    known = places(own_machine, "h100-server", (0, 4))
    found = (known[0], replace(known[1], node=None, doubt="sysfs has no 0000:9d:00.0"))

    assert (vllm_arguments(found), sglang_arguments(found)) == ([], [])
    assert torchrun_arguments(found) == ["--nproc-per-node=2"]


def test_without_devices_there_are_no_arguments(own_machine: TreeOf) -> None:
    root = own_machine("h100-server")
    plan = plan_of_pod("h100-server", root).containers[0][1]
    bare = replace(plan, workers=(replace(plan.workers[0], address=None),))

    assert device_places(bare, read_topology(root)) == ()
    assert (vllm_arguments(()), sglang_arguments(()), torchrun_arguments(())) == ([], [], [])


def test_taskset_and_openmp_use_their_own_notations() -> None:
    pools = parse_cpu_list("1-3,5,8-9")

    assert taskset_arguments(pools) == ["--cpu-list", "1-3,5,8-9"]
    assert openmp_variables(4, pools) == {
        "OMP_NUM_THREADS": "4",
        "OMP_PLACES": "{1:3,5,8:2}",
        "OMP_PROC_BIND": "true",
        "CPUPLAN_POOL_CPUS": "1-3,5,8-9",
    }


def test_without_pins_openmp_gets_no_places() -> None:
    assert taskset_arguments(frozenset()) == []
    assert openmp_variables(4, frozenset()) == {"OMP_NUM_THREADS": "4"}
