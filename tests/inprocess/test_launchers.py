"""A plan in the words of vLLM, SGLang, torchrun, taskset and OpenMP, on machines that know their nodes."""

from __future__ import annotations

from cpuplan.host.sysfs import host_gpus
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
from tests.conftest import TreeOf
from tests.podvolume import plan_of_pod


def places(own_machine: TreeOf, machine: str, gpus: tuple[int, ...]) -> tuple[DevicePlace, ...]:
    root = own_machine(machine)
    plan = plan_of_pod(machine, root, gpus=gpus).containers[0][1]
    workers = [(worker.address, worker.cpus) for worker in plan.workers]
    known = {gpu.address: gpu for gpu in host_gpus(plan.workers[0].address, root.pci_folder)}
    return device_places(workers, plan.pool_cpus, known)


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


def test_where_the_node_is_unknown_only_what_does_not_need_it_is_said(own_machine: TreeOf) -> None:
    found = places(own_machine, "vm-without-locality", (0, 1))

    assert {place.node for place in found} == {None}
    assert vllm_arguments(found)[:2] == ["--numa-bind", "--numa-bind-cpus"]
    assert sglang_arguments(found) == []
    assert torchrun_arguments(found) == ["--nproc-per-node=2"]


def test_without_devices_there_are_no_arguments() -> None:
    assert device_places([(None, frozenset({1}))], frozenset({2}), {}) == ()
    assert (vllm_arguments(()), sglang_arguments(()), torchrun_arguments(())) == ([], [], [])


def test_taskset_and_openmp_use_their_own_notations() -> None:
    pools = parse_cpu_list("1-3,5,8-9")

    assert taskset_arguments(pools) == ["--cpu-list", "1-3,5,8-9"]
    assert openmp_variables(4, pools) == {
        "OMP_NUM_THREADS": "4",
        "OMP_PLACES": "{1:3,5,8:2}",
        "OMP_PROC_BIND": "true",
    }


def test_without_pins_openmp_gets_no_places() -> None:
    assert taskset_arguments(frozenset()) == []
    assert openmp_variables(4, frozenset()) == {"OMP_NUM_THREADS": "4"}
