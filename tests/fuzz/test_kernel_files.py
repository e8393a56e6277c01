"""What the kernel's files may hold, and more: readers answer or know nothing, they never fail."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpuplan.host.cgroup import cgroup_cpu_limit, cgroup_cpuset, granted_at, limit_at
from cpuplan.host.podcgroups import PodCgroups
from cpuplan.host.root import HostRoot
from cpuplan.host.sysfs import read_cpu_list, read_topology
from cpuplan.host.threads import read_allowed_cpus, read_thread_masks, read_thread_start
from cpuplan.model.cpulist import MAX_CPU, format_cpu_list, parse_cpu_list
from cpuplan.model.topology import HostTopology, is_pci_address, normalise_address
from cpuplan.planning.confidence import judge_topology
from tests.fuzz.effort import fuzz
from tests.fuzz.mutation import file_contents, mutated, outcome_of
from tests.wholecores import whole_cores

LISTS = ("0-3,8", "0", "", "0-65536", "3-1", "0-55,112-167", "1,1,1", " 0 - 1 ")
QUOTAS = ("max 100000", "150000 100000", "max", "-1", "0 0", "100000", "1 2 3")
MEMBERSHIPS = (
    "0::/kubepods/pod1/abc\n",
    "12:cpu,cpuacct:/docker/abc\n11:cpuset:/docker/abc\n0::/\n",
    "4:cpu:/a:b/c\n1:name=systemd:/\n",
)
MOUNTS = (
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n",
    "31 24 0:27 /docker/abc /sys/fs/cgroup/cpu,cpuacct rw shared:1 - cgroup cgroup rw,cpu,cpuacct\n"
    "32 24 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n",
    "33 24 0:29 / /dev/cpu\\040set rw - cpuset cpuset rw\n",
)
STATUS = ("Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\n", "Cpus_allowed_list:")
STAT = ("7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 8675309 1 1\n", "7 (x) S")


MOST_CHARACTERS = 1500
"""An error quotes two texts of 60 characters, each up to ten times as long when escaped."""


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def is_known_set(cpus: frozenset[int] | None) -> bool:
    """Whether a reader's answer is a set of CPUs that a kernel may have, or None."""
    return cpus is None or all(0 <= cpu <= MAX_CPU for cpu in cpus)


@fuzz
@given(mutated(LISTS))
def test_a_cpu_list_is_a_set_or_an_error_of_one_line(text: str) -> None:
    found = outcome_of(lambda: parse_cpu_list(text), ValueError)
    assert is_known_set(found) if isinstance(found, frozenset) else len(str(found)) < MOST_CHARACTERS


@fuzz
@given(st.frozensets(st.integers(0, MAX_CPU), max_size=20), st.data())
def test_a_cpu_list_in_any_order_with_repetitions_is_the_same_set(cpus: frozenset[int], data: st.DataObject) -> None:
    parts = [f"{cpu}-{cpu}" for cpu in cpus] + format_cpu_list(cpus).split(",")
    assert parse_cpu_list(",".join(data.draw(st.permutations(parts)))) == cpus


@fuzz
@given(content=file_contents(LISTS))
def test_a_file_of_a_cpu_list_is_a_set_or_unknown(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "list"
    write(path, content)
    assert is_known_set(read_cpu_list(path))


@fuzz
@given(content=file_contents(QUOTAS), period=file_contents(("100000", "0", "-1")))
@pytest.mark.parametrize("names", [("cpu.max", "x"), ("cpu.cfs_quota_us", "cpu.cfs_period_us")])
def test_a_quota_is_a_positive_number_or_none(
    tmp_path: Path, names: tuple[str, str], content: bytes, period: bytes
) -> None:
    for name, text in zip(names, (content, period), strict=True):
        write(tmp_path / name, text)
    quota = limit_at(tmp_path).quota
    assert quota is None or (quota > 0 and math.isfinite(quota))


@fuzz
@given(contents=st.lists(file_contents(LISTS), min_size=4, max_size=4))
def test_a_cpuset_is_a_set_or_unknown(tmp_path: Path, contents: list[bytes]) -> None:
    names = ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus", "cpus")
    for name, content in zip(names, contents, strict=True):
        write(tmp_path / name, content)
    granted = granted_at(tmp_path)
    assert granted is None or is_known_set(granted[1])


@fuzz
@given(memberships=file_contents(MEMBERSHIPS), mounts=st.none() | file_contents(MOUNTS), limit=file_contents(QUOTAS))
def test_a_process_has_a_limit_and_a_cpuset_or_none(
    tmp_path: Path, memberships: bytes, mounts: bytes | None, limit: bytes
) -> None:
    root, mountinfo = tmp_path / "cgroup", tmp_path / "mountinfo"
    write(tmp_path / "membership", memberships)
    write(root / "cpu.max", limit)
    write(root / "cpu,cpuacct" / "docker" / "abc" / "cpu.cfs_quota_us", limit)
    write(root / "cpu,cpuacct" / "docker" / "abc" / "cpu.cfs_period_us", b"100000")
    if mounts is not None:
        write(mountinfo, mounts)
    table = None if mounts is None else mountinfo
    found = cgroup_cpu_limit(root, tmp_path / "membership", mountinfo=table)
    assert found.quota is None or found.quota > 0
    assert is_known_set(cgroup_cpuset(root, tmp_path / "membership", mountinfo=table))


@fuzz
@given(uid=mutated(("1f0f6f9e-2d6f", "x")), container_id=mutated(("4f5d4f5d", "crio-1")), limit=file_contents(QUOTAS))
def test_a_container_has_a_cgroup_or_none(tmp_path: Path, uid: str, container_id: str, limit: bytes) -> None:
    root = HostRoot.at(tmp_path)
    folder = root.cgroup / "kubepods.slice" / "kubepods-pod1f0f6f9e_2d6f.slice" / "cri-containerd-4f5d4f5d.scope"
    write(root.cgroup / "cgroup.controllers", b"cpu cpuset")
    write(folder / "cpu.max", limit)
    found = PodCgroups(root).read(uid, container_id)
    assert found is None or (found.folder.is_dir() and is_known_set(found.cpuset))


@fuzz
@given(status=file_contents(STATUS), stat=file_contents(STAT), name=file_contents(("python3", "")))
def test_a_process_has_threads_with_known_cpus_or_none(tmp_path: Path, status: bytes, stat: bytes, name: bytes) -> None:
    root = HostRoot(proc=tmp_path)
    for folder in (tmp_path / "7", tmp_path / "7" / "task" / "7", tmp_path / "self" / "task" / "7"):
        write(folder / "status", status)
        write(folder / "stat", stat)
        write(folder / "comm", name)
    assert is_known_set(read_allowed_cpus(7, root))
    assert all(is_known_set(thread.allowed) for thread in read_thread_masks(7, root))
    started = read_thread_start(7, root)
    assert started is None or started >= 0


SYSFS_FILES = {
    "devices/system/cpu/online": LISTS,
    "devices/system/cpu/isolated": LISTS,
    "devices/system/cpu/cpu0/topology/thread_siblings_list": LISTS,
    "devices/system/cpu/cpu1/online": ("0", "1"),
    "devices/system/node/node0/cpulist": LISTS,
    "devices/system/node/node0/distance": ("10 21", "10"),
    "devices/system/node/node1/cpulist": LISTS,
    "bus/pci/devices/0000:1b:00.0/class": ("0x030200", "0x120000"),
    "bus/pci/devices/0000:1b:00.0/vendor": ("0x10de", "0x1002"),
    "bus/pci/devices/0000:1b:00.0/numa_node": ("0", "-1", "1"),
    "bus/pci/devices/0000:1b:00.0/local_cpulist": LISTS,
}


def write_sysfs(folder: Path, contents: dict[str, bytes | None]) -> HostRoot:
    """A small sysfs; a file whose content is None is not there."""
    for name, content in contents.items():
        path = folder / "sys" / name
        path.unlink(missing_ok=True)
        if content is not None:
            write(path, content)
    return HostRoot.at(folder)


@fuzz
@given(
    contents=st.fixed_dictionaries({name: st.none() | file_contents(seeds) for name, seeds in SYSFS_FILES.items()}),
    asked=st.lists(mutated(("0000:1b:00.0", "00000000:1B:00.0")), max_size=2),
)
def test_a_sysfs_is_a_topology_that_can_be_judged(
    tmp_path: Path, contents: dict[str, bytes | None], asked: list[str]
) -> None:
    (tmp_path / "sys" / "devices" / "system" / "cpu" / "cpu0").mkdir(parents=True, exist_ok=True)
    topology = read_topology(write_sysfs(tmp_path, contents), asked)
    assert isinstance(topology, HostTopology)
    assert all(cpu in topology.siblings_of(cpu) for cpu in topology.online)
    assert judge_topology(topology).level
    assert whole_cores(topology, topology.online) >= topology.online


@fuzz
@given(mutated(("0000:1b:00.0", "00000000:1B:00.0", "1b:0.0", "10000:00:00.0")))
def test_an_address_is_normalised_once(text: str) -> None:
    once = normalise_address(text)
    assert normalise_address(once) == once
    assert is_pci_address(once) == is_pci_address(text)
