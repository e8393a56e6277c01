"""Containers' cgroups found in every layout that kubelets and runtimes make."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from cpuplan.host import podcgroups
from cpuplan.host.podcgroups import PodCgroups
from cpuplan.host.root import HostRoot
from cpuplan.model.cpulist import parse_cpu_list

UID = "1f0f6f9e-2d6f-4b3a-9f3c-0c1f5c1e7a10"
SLICE_UID = UID.replace("-", "_")
ID = "4f5d" * 16
NOTHING: Mapping[str, str] = {}


@pytest.fixture
def root(tmp_path: Path) -> HostRoot:
    """An empty host."""
    return HostRoot.at(tmp_path)


def write(folder: Path, files: Mapping[str, str] = NOTHING) -> Path:
    """A folder with these files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")
    return folder


def write_v2(root: HostRoot, path: str, files: Mapping[str, str] = NOTHING) -> Path:
    """A cgroup of the unified hierarchy."""
    write(root.cgroup, {"cgroup.controllers": "cpuset cpu memory"})
    return write(root.cgroup / path, files)


V2_LAYOUTS = {
    "systemd, containerd": f"kubepods.slice/kubepods-pod{SLICE_UID}.slice/cri-containerd-{ID}.scope",
    "systemd, burstable": "kubepods.slice/kubepods-burstable.slice/"
    f"kubepods-burstable-pod{SLICE_UID}.slice/cri-containerd-{ID}.scope",
    "systemd, CRI-O": "kubepods.slice/kubepods-besteffort.slice/"
    f"kubepods-besteffort-pod{SLICE_UID}.slice/crio-{ID}.scope",
    "systemd, docker": f"kubepods.slice/kubepods-pod{SLICE_UID}.slice/docker-{ID}.scope",
    "cgroupfs": f"kubepods/burstable/pod{UID}/{ID}",
    "cgroupfs, CRI-O": f"kubepods/pod{UID}/crio-{ID}",
    "kind, systemd": "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
    f"kubelet-kubepods-burstable-pod{SLICE_UID}.slice/cri-containerd-{ID}.scope",
    "kind, cgroupfs": f"kubelet/kubepods/besteffort/pod{UID}/{ID}",
    "kind in docker": f"docker/{'ab' * 32}/kubelet/kubepods/pod{UID}/{ID}",
    "containerd without systemd below a systemd kubelet": "system.slice/containerd.service/"
    f"kubepods-burstable-pod{SLICE_UID}.slice:cri-containerd:{ID}",
}


@pytest.mark.parametrize("path", V2_LAYOUTS.values(), ids=V2_LAYOUTS.keys())
def test_a_container_is_found_in_every_layout(root: HostRoot, path: str) -> None:
    folder = write_v2(root, path, {"cpuset.cpus.effective": "4-7", "cpu.max": "150000 100000"})
    found = PodCgroups(root).read(UID, ID)
    assert found is not None
    assert (found.folder, found.cpuset, found.quota) == (folder, parse_cpu_list("4-7"), 1.5)


@pytest.mark.parametrize(
    "level", ["", "kubepods", "kubepods/burstable", f"kubepods/burstable/pod{UID}", f"kubepods/burstable/pod{UID}/{ID}"]
)
def test_the_tightest_limit_of_any_level_counts_and_is_named(root: HostRoot, level: str) -> None:
    path = f"kubepods/burstable/pod{UID}/{ID}"
    for each in ("kubepods", "kubepods/burstable", f"kubepods/burstable/pod{UID}", path):
        write_v2(root, each, {"cpu.max": "800000 100000"})
    tight = write_v2(root, level, {"cpu.max": "250000 100000"})
    found = PodCgroups(root).read(UID, ID)
    assert found is not None
    assert (found.quota, found.quota_folder) == (2.5, tight)
    assert list(map(str, found.quota_sources)) == [f"{tight}/cpu.max: 250000 100000"]


def test_a_limit_of_the_node_container_that_kind_runs_in_counts(root: HostRoot) -> None:
    node = write_v2(root, "docker/node", {"cpu.max": "200000 100000"})
    write_v2(root, f"docker/node/kubelet/kubepods/pod{UID}/{ID}", {"cpu.max": "max 100000"})
    found = PodCgroups(root).read(UID, ID)
    assert found is not None
    assert (found.quota, found.quota_folder) == (2.0, node)


def test_where_the_cpuset_controller_is_not_handed_down_an_ancestors_holds(root: HostRoot) -> None:
    kubepods = write_v2(root, "kubepods", {"cpuset.cpus.effective": "0-5"})
    folder = write_v2(root, f"kubepods/pod{UID}/{ID}", {"cpu.max": "max"})
    found = PodCgroups(root).read(UID, ID)
    assert found is not None
    assert (found.cpuset, found.cpuset_file) == (parse_cpu_list("0-5"), kubepods / "cpuset.cpus.effective")
    assert (found.quota, list(map(str, found.quota_sources))) == (None, [f"{folder}/cpu.max: max"])


def test_cruns_child_is_looked_into(root: HostRoot) -> None:
    scope = f"kubepods.slice/kubepods-pod{SLICE_UID}.slice/crio-{ID}.scope"
    write_v2(root, scope, {"cpuset.cpus.effective": "0-3", "cpu.max": "max 100000"})
    write_v2(root, f"{scope}/container", {"cpu.max": "300000 100000"})
    found = PodCgroups(root).read(UID, ID)
    assert found is not None
    assert (found.folder, found.quota) == (root.cgroup / scope, 3.0)


def test_the_monitor_of_a_container_is_not_the_container(root: HostRoot) -> None:
    pod = f"kubepods.slice/kubepods-pod{SLICE_UID}.slice"
    write_v2(root, f"{pod}/crio-conmon-{ID}.scope", {"cpu.max": "100000 100000"})
    scope = write_v2(root, f"{pod}/crio-{ID}.scope", {"cpu.max": "max"})
    found = PodCgroups(root).read(UID, ID)
    assert found is not None
    assert found.folder == scope


@pytest.mark.parametrize("cpu", ["cpu", "cpu,cpuacct"])
def test_v1_has_quota_and_cpuset_in_hierarchies_of_their_own(root: HostRoot, cpu: str) -> None:
    path = f"kubepods/burstable/pod{UID}/{ID}"
    write(root.cgroup / cpu / path, {"cpu.cfs_quota_us": "400000", "cpu.cfs_period_us": "100000"})
    write(root.cgroup / "cpuset" / path, {"cpuset.cpus": "8-11"})
    found = PodCgroups(root).read(UID, ID)
    assert found is not None
    assert (found.cpuset, found.quota) == (parse_cpu_list("8-11"), 4.0)


def test_a_hybrid_host_keeps_its_v1_controllers(root: HostRoot) -> None:
    path = f"kubepods/pod{UID}/{ID}"
    write(root.cgroup / "unified", {"cgroup.controllers": ""})
    write(root.cgroup / "unified" / path)
    write(root.cgroup / "cpu" / path, {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"})
    write(root.cgroup / "cpuset" / path, {"cpuset.cpus": "0-1"})
    found = PodCgroups(root).read(UID, ID)
    assert found is not None
    assert (found.cpuset, found.quota) == (parse_cpu_list("0-1"), None)


@pytest.mark.parametrize("text", ["", "max", "max 100000", "0 0", "x y", "1 2 3", "-1 100000"])
def test_files_that_say_no_limit_or_nothing_are_no_limit(root: HostRoot, text: str) -> None:
    write_v2(root, f"kubepods/pod{UID}/{ID}", {"cpu.max": text, "cpuset.cpus.effective": "?"})
    found = PodCgroups(root).read(UID, ID)
    assert found is not None
    assert (found.cpuset, found.quota) == (None, None)


def test_a_container_whose_scope_is_there_but_empty_is_not_believed_until_it_is_set_up(root: HostRoot) -> None:
    pod = f"kubepods/pod{UID}"
    write_v2(root, pod, {"cpuset.cpus": "", "cpuset.cpus.effective": "0-223", "cpu.max": "max 100000"})
    write_v2(root, f"{pod}/{ID}", {"cpuset.cpus": "", "cpuset.cpus.effective": "", "cpu.max": "max 100000"})
    cgroups = PodCgroups(root)
    assert cgroups.read(UID, ID) is None
    write_v2(root, f"{pod}/{ID}", {"cpuset.cpus": "8-15", "cpuset.cpus.effective": "8-15", "cpu.max": "800000 100000"})
    found = cgroups.read(UID, ID)
    assert found is not None
    assert (found.cpuset, found.quota) == (parse_cpu_list("8-15"), 8.0)


@pytest.mark.parametrize("name", ["cpuset.effective_cpus", "cpuset.cpus"])
def test_on_v1_too_an_empty_cpuset_is_not_believed(root: HostRoot, name: str) -> None:
    path = f"kubepods/pod{UID}/{ID}"
    write(root.cgroup / "cpu" / path, {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"})
    folder = write(root.cgroup / "cpuset" / path, {name: ""})
    assert PodCgroups(root).read(UID, ID) is None
    write(folder, {name: "0-3"})
    assert PodCgroups(root).read(UID, ID) is not None


@pytest.mark.parametrize("container_id", ["", "0" * 64, "../../etc", "a/b"])
def test_what_is_not_there_is_none(root: HostRoot, container_id: str) -> None:
    write_v2(root, f"kubepods/pod{UID}/{ID}")
    assert PodCgroups(root).read(UID, container_id) is None


def test_a_host_without_cgroups_has_none(root: HostRoot) -> None:
    assert PodCgroups(root).read(UID, ID) is None


def test_a_container_that_comes_later_is_found(root: HostRoot) -> None:
    cgroups = PodCgroups(root)
    assert cgroups.read(UID, ID) is None
    write_v2(root, f"kubepods/pod{UID}/{ID}", {"cpu.max": "max"})
    assert cgroups.read(UID, ID) is not None


def test_a_container_that_was_found_and_is_gone_is_none(root: HostRoot) -> None:
    folder = write_v2(root, f"kubepods/pod{UID}/{ID}")
    cgroups = PodCgroups(root)
    assert cgroups.read(UID, ID) is not None
    folder.rmdir()
    assert cgroups.read(UID, ID) is None


def test_an_endless_tree_is_searched_within_bounds(root: HostRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podcgroups, "MOST_FOLDERS", 50)
    write_v2(root, "")
    for number in range(80):
        write_v2(root, f"a{number:02}")
    write_v2(root, f"z/kubepods/pod{UID}/{ID}")
    assert PodCgroups(root).read(UID, ID) is None


def test_links_in_the_tree_are_not_followed(root: HostRoot) -> None:
    write_v2(root, "a")
    (root.cgroup / "a" / "loop").symlink_to(root.cgroup)
    assert PodCgroups(root).read(UID, ID) is None
