"""What an audit finds, and what it does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from cpuplan.host.sysfs import read_topology
from cpuplan.model.cpulist import parse_cpu_list
from cpuplan.model.request import DeploymentRequest, PodRef, Refusal, WorkerDevice
from cpuplan.model.topology import HostTopology
from cpuplan.planning.audit import VisiblePools, audit
from tests.conftest import TreeOf

GPU_OF_NODE_0, GPU_OF_NODE_1 = "0000:1b:00.0", "0000:9d:00.0"
SIZED = VisiblePools({}, is_sized=True)


@pytest.fixture
def topology(own_machine: TreeOf) -> HostTopology:
    """Node 0 has CPUs 0-55,112-167 and four GPUs, node 1 the others."""
    return read_topology(own_machine("h100-server"))


def request(
    mask: str, *gpus: str | None, quota: float | None = None, refusal: Refusal | None = None
) -> DeploymentRequest:
    return DeploymentRequest(
        pod=PodRef("default", "llm-0", "u1", "2026-12-01T10:00:00Z"),
        container="engine",
        position=0,
        setting="off",
        workers=tuple(WorkerDevice(gpu) for gpu in gpus),
        devices=(),
        mask=parse_cpu_list(mask),
        quota=quota,
        refusal=refusal,
    )


def what_fails(request: DeploymentRequest, topology: HostTopology, pools: VisiblePools = SIZED) -> list[str]:
    return [finding.test for finding in audit(request, topology, pools).findings]


def test_cpus_that_are_all_remote_from_a_gpu_are_found(topology: HostTopology) -> None:
    (finding,) = audit(request("56-63", GPU_OF_NODE_0), topology, SIZED).findings

    assert finding.test == "remote-cpus"
    assert finding.sentence == (
        "all CPUs of the mask (56-63) are remote from GPU 0000:1b:00.0, whose local CPUs are 0-55,112-167 (NUMA node 0)"
    )


@pytest.mark.parametrize(
    ("mask", "gpus"),
    [
        pytest.param("0-7", [GPU_OF_NODE_0], id="all local"),
        pytest.param("0-223", [GPU_OF_NODE_0], id="the shared pool"),
        pytest.param("55-60", [GPU_OF_NODE_0], id="partly local"),
        pytest.param("0-7", [None], id="a device that cannot be placed"),
        pytest.param("0-7", ["0000:ff:00.0"], id="a device that sysfs does not know"),
        pytest.param("", [GPU_OF_NODE_0], id="a mask that is not known"),
    ],
)
def test_cpus_that_are_local_or_unknown_are_not(topology: HostTopology, mask: str, gpus: list[str | None]) -> None:
    assert what_fails(request(mask, *gpus), topology) == []


def test_every_gpu_is_looked_at_once(topology: HostTopology) -> None:
    assert what_fails(request("0-7", GPU_OF_NODE_1, GPU_OF_NODE_1, GPU_OF_NODE_0), topology) == ["remote-cpus"]


def test_a_gpu_without_known_locality_is_remote_from_nothing(own_machine: TreeOf) -> None:
    topology = read_topology(own_machine("gb200-memory-nodes"))
    gpus = [function.address for function in topology.functions]

    assert "remote-cpus" not in what_fails(request("0-7", *gpus), topology)


def test_a_pool_larger_than_the_quota_is_found_with_both_numbers(topology: HostTopology) -> None:
    pools = VisiblePools({"OMP_NUM_THREADS": 64, "MKL_NUM_THREADS": 4})

    (finding,) = audit(request("0-223", GPU_OF_NODE_0, quota=4.5), topology, pools).findings

    assert finding.test == "pools-over-quota"
    assert finding.sentence == "OMP_NUM_THREADS asks for 64 threads, the quota of 4.5 CPUs lets 4 run at once"


def test_pools_that_nothing_bounds_are_found_where_there_is_a_quota(topology: HostTopology) -> None:
    (finding,) = audit(request("0-223", GPU_OF_NODE_0, quota=16.0), topology, VisiblePools({})).findings

    assert finding.test == "pools-unbounded"
    assert finding.sentence.startswith("no variable bounds its pools, so they are sized to the 224 CPUs it sees; ")


@pytest.mark.parametrize(
    ("counts", "is_sized", "quota"),
    [
        pytest.param({"OMP_NUM_THREADS": 16}, False, 16.0, id="bounded by a variable"),
        pytest.param({"OMP_NUM_THREADS": None}, False, 16.0, id="bounded by a value from elsewhere"),
        pytest.param({}, True, 16.0, id="sized by cpuplan run"),
        pytest.param({}, False, None, id="no quota"),
        pytest.param({}, False, 224.0, id="a quota as large as the mask"),
    ],
)
def test_pools_that_fit_are_not(
    topology: HostTopology, counts: Mapping[str, int | None], is_sized: bool, quota: float | None
) -> None:
    found = what_fails(request("0-223", GPU_OF_NODE_0, quota=quota), topology, VisiblePools(counts, is_sized))

    assert found == []


def test_a_quota_that_cannot_run_all_step_threads_is_found(topology: HostTopology) -> None:
    assert what_fails(request("0-223", *[GPU_OF_NODE_0] * 8, quota=9.0), topology) == ["too-few-cpus"]
    assert what_fails(request("0-223", *[GPU_OF_NODE_0] * 8, quota=10.0), topology) == []


def test_devices_that_cannot_be_seen_are_said(topology: HostTopology) -> None:
    refusal = Refusal("waiting-for-devices", "the kubelet shows 0 of 1 nvidia.com/gpu for the container so far")

    (finding,) = audit(request("0-7", refusal=refusal), topology, SIZED).findings

    assert (finding.test, finding.sentence) == ("device-unknown", refusal.why)


def test_a_device_that_cannot_be_placed_is_said(topology: HostTopology) -> None:
    lost = request("0-7", None)
    lost = replace(lost, workers=(WorkerDevice(None, "GPU-1"), WorkerDevice(None, None)))

    (finding,) = audit(lost, topology, SIZED).findings

    assert (finding.test, finding.sentence) == (
        "device-unknown",
        "GPU-1 cannot be placed: the node knows no such device",
    )
