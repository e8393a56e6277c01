"""A container's mask and quota in every combination of cgroup version, driver, runtime, QoS class and nesting.

Paths: cgroup_manager_linux.go and pod_container_manager_linux.go of Kubernetes (drivers, QoS classes, `--cgroup-root`),
internal/cri of containerd, internal/config/cgmgr of CRI-O, cri-dockerd (names of the container's own folder),
systemd.slice(5) (a slice's name repeats its parents'), crun(1) (run.oci.systemd.subgroup), kind (nodes in containers).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from cpuplan.host.podcgroups import PodCgroups
from cpuplan.host.root import HostRoot
from cpuplan.model.cpulist import parse_cpu_list

UID = "0b0b71e5-1df4-4a52-9a7a-7c2f7f6f5d10"
ID = "9c3e" * 16
SANDBOX_ID = "17d0" * 16
NODE_ID = "e5a1" * 16
"""A kind node's own container."""

NOTHING: Mapping[str, str] = {}

# The container's own folder: with the systemd driver a scope, else as the runtime names it.
SYSTEMD_SCOPES = {"containerd": "cri-containerd-{}.scope", "CRI-O": "crio-{}.scope", "docker": "docker-{}.scope"}
CGROUPFS_FOLDERS = {"containerd": "{}", "CRI-O": "crio-{}", "docker": "{}"}

QOS_CLASSES = ("", "burstable", "besteffort")

# What lies above the kubelet's own folders: nothing, `--cgroup-root`, a node that is a container itself.
SYSTEMD_PARENTS = {"": (), "kubelet": ("kubelet.slice",), "kind": ("docker-" + NODE_ID + ".scope", "kubelet.slice")}
CGROUPFS_PARENTS = {"": (), "kubelet": ("kubelet",), "kind": ("docker", NODE_ID, "kubelet")}


def systemd_path(runtime: str, qos: str, nesting: str) -> str:
    """The container's path with the systemd driver: each slice's name begins with its parent's."""
    *outer, name = (*SYSTEMD_PARENTS[nesting], "") if nesting == "" else SYSTEMD_PARENTS[nesting]
    prefix = name.removesuffix(".slice")
    parts = [*outer, name] if name else list(outer)
    for part in ("kubepods", qos, f"pod{UID.replace('-', '_')}"):
        if part:
            prefix = f"{prefix}-{part}" if prefix else part
            parts.append(f"{prefix}.slice")
    return "/".join([*parts, SYSTEMD_SCOPES[runtime]])


def cgroupfs_path(runtime: str, qos: str, nesting: str) -> str:
    """The container's path with the cgroupfs driver."""
    parts = [*CGROUPFS_PARENTS[nesting], "kubepods", qos, f"pod{UID}", CGROUPFS_FOLDERS[runtime]]
    return "/".join(part for part in parts if part)


PATHS = {
    f"{driver}, {runtime}, {qos or 'guaranteed'}{', below ' + nesting if nesting else ''}": path(runtime, qos, nesting)
    for driver, path in (("systemd", systemd_path), ("cgroupfs", cgroupfs_path))
    for runtime in SYSTEMD_SCOPES
    for qos in QOS_CLASSES
    for nesting in SYSTEMD_PARENTS
}


@dataclass(frozen=True, slots=True)
class Version:
    """Where the controllers are mounted, and in which files they tell.

    Attributes:
        cpu, cpuset: folders below the cgroup root.
        files: further files of the root, by path.
    """

    cpu: str
    cpuset: str
    files: Mapping[str, str]

    def write(self, root: HostRoot, path: str, *, cpus: str, quota_us: int | None) -> Path:
        """A cgroup with these CPUs and this quota (None: none); the folder of its cpu controller."""
        for name, text in self.files.items():
            write(root.cgroup / name, text)
        cpu, cpuset = root.cgroup / self.cpu / path, root.cgroup / self.cpuset / path
        if self.cpu == self.cpuset:
            write(cpu / "cpu.max", f"{'max' if quota_us is None else quota_us} 100000")
            write(cpuset / "cpuset.cpus.effective", cpus)
        else:
            write(cpu / "cpu.cfs_quota_us", str(-1 if quota_us is None else quota_us))
            write(cpu / "cpu.cfs_period_us", "100000")
            write(cpuset / "cpuset.cpus", cpus)
        return cpu


VERSIONS = {
    "v2": Version("", "", {"cgroup.controllers": "cpuset cpu io memory"}),
    "v1": Version("cpu", "cpuset", NOTHING),
    "v1, joined": Version("cpu,cpuacct", "cpuset", NOTHING),
    "v1, joined the other way round": Version("cpuacct,cpu", "cpuset", NOTHING),
    "hybrid": Version("cpu,cpuacct", "cpuset", {"unified/cgroup.controllers": ""}),
    "v2 below a folder of its own": Version("unified", "unified", {"unified/cgroup.controllers": "cpuset cpu"}),
}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


@pytest.fixture
def root(tmp_path: Path) -> HostRoot:
    """An empty host."""
    return HostRoot.at(tmp_path)


@pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS)
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_the_container_is_found_and_not_its_sandbox(root: HostRoot, version: Version, path: str) -> None:
    version.write(root, path.format(SANDBOX_ID), cpus="0-223", quota_us=None)
    folder = version.write(root, path.format(ID), cpus="8-15", quota_us=450_000)
    found = PodCgroups(root).read(UID, ID)
    assert found is not None
    assert (found.folder, found.cpuset, found.quota) == (folder, parse_cpu_list("8-15"), 4.5)


@pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS)
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize("above", [1, 2])
def test_a_tighter_limit_of_the_pod_or_what_is_above_it_counts(
    root: HostRoot, version: Version, path: str, above: int
) -> None:
    version.write(root, path.format(ID), cpus="0-7", quota_us=800_000)
    parent = "/".join(path.split("/")[:-above])
    folder = version.write(root, parent, cpus="0-7", quota_us=150_000)
    found = PodCgroups(root).read(UID, ID)
    assert found is not None
    assert (found.quota, found.quota_folder) == (1.5, folder)


@pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS)
def test_exclusive_cpus_have_a_cpuset_and_no_quota(root: HostRoot, version: Version) -> None:
    path = systemd_path("containerd", "", "").format(ID)
    version.write(root, path, cpus="2-3,114-115", quota_us=None)
    found = PodCgroups(root).read(UID, ID)
    assert found is not None
    assert (found.cpuset, found.quota, found.quota_folder) == (parse_cpu_list("2-3,114-115"), None, None)


@pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS)
def test_a_rewritten_cpuset_and_a_resized_quota_are_seen_at_the_next_look(root: HostRoot, version: Version) -> None:
    path = cgroupfs_path("containerd", "burstable", "").format(ID)
    cgroups = PodCgroups(root)
    version.write(root, path, cpus="0-223", quota_us=1_600_000)
    before = cgroups.read(UID, ID)
    version.write(root, path, cpus="0-1,4-223", quota_us=800_000)
    after = cgroups.read(UID, ID)
    assert before is not None
    assert after is not None
    assert (before.quota, after.quota, after.cpuset) == (16.0, 8.0, parse_cpu_list("0-1,4-223"))


@pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS)
def test_a_container_that_is_restarted_has_a_scope_of_its_own(root: HostRoot, version: Version) -> None:
    again = "51f7" * 16
    path = systemd_path("CRI-O", "burstable", "")
    cgroups = PodCgroups(root)
    version.write(root, path.format(ID), cpus="0-3", quota_us=400_000)
    assert cgroups.read(UID, ID) is not None
    version.write(root, path.format(again), cpus="4-7", quota_us=200_000)
    found = cgroups.read(UID, again)
    assert found is not None
    assert (found.cpuset, found.quota) == (parse_cpu_list("4-7"), 2.0)


@pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS)
def test_a_limit_that_crun_sets_on_its_extra_child_counts(root: HostRoot, version: Version) -> None:
    path = systemd_path("CRI-O", "", "").format(ID)
    scope = version.write(root, path, cpus="0-7", quota_us=None)
    child = version.write(root, f"{path}/container", cpus="0-7", quota_us=300_000)
    found = PodCgroups(root).read(UID, ID)
    assert found is not None
    assert (found.folder, found.quota, found.quota_folder) == (scope, 3.0, child)


@pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS)
def test_another_pods_container_of_the_same_runtime_is_not_taken(root: HostRoot, version: Version) -> None:
    path = cgroupfs_path("docker", "burstable", "").format(ID).replace(UID, "f" * 8 + UID[8:])
    version.write(root, path, cpus="0-3", quota_us=100_000)
    assert PodCgroups(root).read(UID, "51f7" * 16) is None
