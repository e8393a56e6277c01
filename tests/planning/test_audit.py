"""What an audit finds, and what it does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpuplan.host.sysfs import read_topology
from cpuplan.model.cpulist import format_cpu_list, parse_cpu_list
from cpuplan.model.pools import VisiblePools
from cpuplan.model.request import WorkerDevice
from cpuplan.model.topology import HostTopology
from cpuplan.planning.audit import TESTS, Audited, GpuUser, audit
from cpuplan.planning.confidence import Finding
from tests.conftest import TreeOf

GPU_OF_NODE_0, GPU_OF_NODE_1 = "0000:1b:00.0", "0000:9d:00.0"
SIZED = VisiblePools({}, is_sized=True)


@pytest.fixture
def topology(own_machine: TreeOf) -> HostTopology:
    """Node 0 has CPUs 0-55,112-167 and four GPUs, node 1 the others."""
    return read_topology(own_machine("h100-server"))


def user(mask: str, *gpus: str | None, quota: float | None = None, pools: VisiblePools = SIZED) -> GpuUser:
    return GpuUser(
        namespace="default",
        name="llm-0 container engine",
        devices=tuple(WorkerDevice(gpu) for gpu in gpus),
        trouble="",
        mask=parse_cpu_list(mask),
        quota=quota,
        pools=pools,
    )


def failed_tests(user: GpuUser, topology: HostTopology) -> list[str]:
    return [finding.test for finding in audit(user, topology).findings]


def test_cpus_that_are_all_remote_from_a_gpu_are_found(topology: HostTopology) -> None:
    (finding,) = audit(user("56-63", GPU_OF_NODE_0), topology).findings

    assert finding.test == "remote-cpus"
    assert finding.sentence == (
        "all CPUs of the mask (56-63) are remote from GPU 0000:1b:00.0, whose local CPUs are 0-55,112-167 (NUMA node 0)"
    )


def test_cpus_of_which_some_are_remote_from_every_gpu_are_found(topology: HostTopology) -> None:
    found = audit(user("52-57", GPU_OF_NODE_0), topology)

    assert found.local == parse_cpu_list("52-55")
    assert [finding.test for finding in found.findings] == ["partly-remote-cpus"]
    assert found.findings[0].sentence.startswith(
        "2 of the 6 CPUs of the mask (56-57) are remote from every GPU of its own, and nothing keeps its step threads"
    )


def test_a_plan_that_pins_step_threads_keeps_them_from_remote_cpus(topology: HostTopology) -> None:
    assert failed_tests(replace(user("0-223", GPU_OF_NODE_0), is_pinned=True), topology) == []


@pytest.mark.parametrize(
    ("mask", "gpus"),
    [
        pytest.param("0-7", [GPU_OF_NODE_0], id="all local"),
        pytest.param("0-223", [GPU_OF_NODE_0, GPU_OF_NODE_1], id="the shared pool, with GPUs on every node"),
        pytest.param("0-7", [None], id="a device that cannot be placed"),
        pytest.param("0-7", ["0000:ff:00.0"], id="a device that sysfs does not know"),
        pytest.param("", [GPU_OF_NODE_0], id="a mask that is not known"),
    ],
)
def test_cpus_that_are_local_or_unknown_are_not(topology: HostTopology, mask: str, gpus: list[str | None]) -> None:
    assert failed_tests(user(mask, *gpus), topology) == []


def test_every_gpu_is_looked_at_once(topology: HostTopology) -> None:
    assert failed_tests(user("0-7", GPU_OF_NODE_1, GPU_OF_NODE_1, GPU_OF_NODE_0), topology) == ["remote-cpus"]


@pytest.mark.parametrize("machine", ["gb200-memory-nodes", "vm-without-locality"])
def test_a_gpu_without_known_locality_is_remote_from_nothing(own_machine: TreeOf, machine: str) -> None:
    topology = read_topology(own_machine(machine))
    found = audit(user("0-7", *(function.address for function in topology.functions)), topology)

    assert found.local is None
    assert {"remote-cpus", "partly-remote-cpus"}.isdisjoint(finding.test for finding in found.findings)


def test_a_pool_larger_than_the_quota_is_found_with_both_numbers(topology: HostTopology) -> None:
    pools = VisiblePools({"OMP_NUM_THREADS": 64, "MKL_NUM_THREADS": 4})

    (finding,) = audit(user("0-55", GPU_OF_NODE_0, quota=4.5, pools=pools), topology).findings

    assert finding.test == "pools-over-quota"
    assert finding.sentence == "OMP_NUM_THREADS asks for 64 threads, the quota of 4.5 CPUs lets 4 run at once"


def test_pools_that_nothing_bounds_are_found_where_there_is_a_quota(topology: HostTopology) -> None:
    (finding,) = audit(user("0-55", GPU_OF_NODE_0, quota=16.0, pools=VisiblePools({})), topology).findings

    assert finding.test == "pools-unbounded"
    assert finding.sentence == (
        "no variable bounds its pools, so libraries size them to the 56 CPUs it sees; the quota of 16 CPUs lets 16 run "
        "at once"
    )


@pytest.mark.parametrize(
    ("counts", "is_sized", "quota"),
    [
        pytest.param({"OMP_NUM_THREADS": 16}, False, 16.0, id="bounded by a variable"),
        pytest.param({"OMP_NUM_THREADS": None}, False, 16.0, id="bounded by a value from elsewhere"),
        pytest.param({}, True, 16.0, id="sized by cpuplan run"),
        pytest.param({}, False, None, id="no quota"),
        pytest.param({}, False, 56.0, id="a quota as large as the mask"),
    ],
)
def test_pools_that_fit_are_not(
    topology: HostTopology, counts: Mapping[str, int | None], is_sized: bool, quota: float | None
) -> None:
    asked = user("0-55", GPU_OF_NODE_0, quota=quota, pools=VisiblePools(counts, is_sized))

    assert failed_tests(asked, topology) == []


def test_a_quota_that_cannot_run_all_step_threads_is_found(topology: HostTopology) -> None:
    assert failed_tests(user("0-55", *[GPU_OF_NODE_0] * 8, quota=9.0), topology) == ["too-few-cpus"]
    assert failed_tests(user("0-55", *[GPU_OF_NODE_0] * 8, quota=10.0), topology) == []


def test_devices_that_cannot_be_seen_are_said(topology: HostTopology) -> None:
    trouble = "the kubelet shows 0 of 1 nvidia.com/gpu for the container so far"

    (finding,) = audit(replace(user("0-7"), trouble=trouble), topology).findings

    assert (finding.test, finding.sentence) == ("device-unknown", trouble)


def test_a_device_that_has_no_place_is_named(topology: HostTopology) -> None:
    unknown = WorkerDevice(None, "GPU-00000000-0000-0000-0000-000000000000")

    (finding,) = audit(replace(user("0-7"), devices=(unknown,)), topology).findings

    assert finding.test == "device-unknown"
    assert finding.sentence == f"{unknown.device_id} cannot be placed: the node knows no such device"


CPUS = st.frozensets(st.integers(0, 300), max_size=8)


@given(
    st.builds(
        Audited,
        namespace=st.text(max_size=5),
        name=st.text(max_size=5),
        is_planned=st.booleans(),
        mask=CPUS,
        local=st.none() | CPUS,
        quota=st.none() | st.floats(0.1, 1000),
        usable=st.integers(1, 300),
        addresses=st.lists(st.none() | st.text(max_size=5), max_size=3).map(tuple),
        findings=st.lists(
            st.builds(Finding, test=st.sampled_from(TESTS), sentence=st.text(max_size=9)), max_size=2
        ).map(tuple),
    )
)
def test_an_audit_reads_back_equal_from_its_json(found: Audited) -> None:
    assert Audited.from_document(found.to_document()) == found


def test_the_json_has_the_documented_form(topology: HostTopology) -> None:
    found = audit(user("52-57", GPU_OF_NODE_0, quota=2.5, pools=VisiblePools({})), topology).to_document()

    assert [finding["test"] for finding in found.pop("findings")] == [
        "partly-remote-cpus",
        "pools-unbounded",
        "too-few-cpus",
    ]
    assert found == {
        "namespace": "default",
        "name": "llm-0 container engine",
        "planned": False,
        "mask": "52-57",
        "localCpus": format_cpu_list(range(52, 56)),
        "quota": 2.5,
        "usable": 2,
        "devices": [GPU_OF_NODE_0],
    }
