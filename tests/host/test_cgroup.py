"""The quota and the cpuset of a process: real cases, and every kind of fault in their files."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cpuplan.host.cgroup import CGROUP_ROOT, cgroup_cpu_limit, cgroup_cpu_quota, cgroup_cpuset, limit_at
from cpuplan.model.cpulist import format_cpu_list
from tests.cases import each_case, names_below

CGROUPS = names_below("cgroups")


def read_case(cases: Path, name: str) -> tuple[dict[str, Any], tuple[Path, Path, Path]]:
    """A case's expectations, and its cgroupfs, /proc/self/cgroup and /proc/self/mountinfo."""
    folder = cases / "cgroups" / name
    paths = (folder / "root" / "sys" / "fs" / "cgroup", folder / "proc_self_cgroup", folder / "mountinfo")
    return json.loads((folder / "case.json").read_text()), paths


def stated_quota(case: Mapping[str, Any]) -> float | None:
    """The quota that a case states, as a number or as `answer N` or `(N)`; None where there is no limit."""
    if case["expected_quota_cpus"] is not None:
        return float(case["expected_quota_cpus"])
    answer = re.search(r"answer ([0-9.]+)|\(([0-9.]+)\)", case["expected_behaviour"] or "")
    return None if answer is None else float(answer[1] or answer[2])


@each_case("name", CGROUPS)
def test_a_real_case_has_the_quota_that_its_source_states(name: str, cases: Path) -> None:
    case, (root, proc_cgroup, mountinfo) = read_case(cases, name)
    assert cgroup_cpu_quota(root, proc_cgroup, mountinfo=mountinfo) == pytest.approx(stated_quota(case))


@each_case("name", CGROUPS)
def test_a_real_case_has_the_cpuset_that_its_source_or_a_second_reader_states(name: str, cases: Path) -> None:
    case, (root, proc_cgroup, mountinfo) = read_case(cases, name)
    cpus = cgroup_cpuset(root, proc_cgroup, mountinfo=mountinfo)
    stated = case["expected_cpuset"] or case["reference_reading"]["cpuset"]
    assert (None if cpus is None else format_cpu_list(cpus)) == stated


@each_case("name", CGROUPS)
def test_a_real_case_is_read_from_the_root_of_its_tree_alike(name: str, cases: Path) -> None:
    _, (root, proc_cgroup, mountinfo) = read_case(cases, name)
    whole = cgroup_cpu_quota(root.parents[2], proc_cgroup, mountinfo=mountinfo)
    assert whole == cgroup_cpu_quota(root, proc_cgroup, mountinfo=mountinfo)


def test_this_process_is_read_without_any_argument() -> None:
    quota = cgroup_cpu_quota()
    assert quota is None or quota > 0
    assert cgroup_cpu_quota(CGROUP_ROOT, "/proc/self/cgroup", mountinfo="/proc/self/mountinfo") == quota


V2_MOUNT = "30 23 0:26 {top} {point} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
V1_MOUNT = "31 23 0:27 {top} {point} rw,nosuid - cgroup cgroup rw,{controllers}"


class Host:
    """A cgroup tree below a folder, with one process in it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "sys" / "fs" / "cgroup"
        self.proc_cgroup = folder / "cgroup"
        self.mountinfo = folder / "mountinfo"
        self.root.mkdir(parents=True)
        self.process("0::/")
        self.mounts(V2_MOUNT.format(top="/", point="/sys/fs/cgroup"))

    def process(self, *memberships: str) -> None:
        self.proc_cgroup.write_text("".join(f"{line}\n" for line in memberships))

    def mounts(self, *lines: str) -> None:
        self.mountinfo.write_text("".join(f"{line}\n" for line in lines))

    def write(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    @property
    def quota(self) -> float | None:
        return cgroup_cpu_quota(self.root, self.proc_cgroup, mountinfo=self.mountinfo)

    @property
    def cpuset(self) -> frozenset[int] | None:
        return cgroup_cpuset(self.root, self.proc_cgroup, mountinfo=self.mountinfo)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.parametrize("level", ["cpu.max", "a/cpu.max", "a/b/cpu.max", "a/b/c/cpu.max"])
def test_the_tightest_limit_counts_wherever_it_stands(host: Host, level: str) -> None:
    host.process("0::/a/b/c")
    for path in ("cpu.max", "a/cpu.max", "a/b/cpu.max", "a/b/c/cpu.max"):
        host.write(path, "800000 100000\n")
    host.write(level, "150000 100000\n")
    assert host.quota == 1.5


def test_the_cgroup_that_sets_the_limit_is_named(host: Host) -> None:
    host.process("0::/a/b")
    host.write("a/cpu.max", "150000 100000\n")
    limit = cgroup_cpu_limit(host.root, host.proc_cgroup, mountinfo=host.mountinfo)
    assert (limit.quota, limit.folder) == (1.5, host.root / "a")


@pytest.mark.parametrize(
    ("text", "quota"),
    [
        ("max 100000\n", None),
        ("50000 100000\n", 0.5),
        ("50000\n", 0.5),
        ("max\n", None),
        ("", None),
        ("\n", None),
        ("100000 100000 100000\n", None),
        ("100000 0\n", None),
        ("0 100000\n", None),
        ("-1 100000\n", None),
        ("1e5 100000\n", None),
        ("1_000 100000\n", None),
        ("\u0665\u0660 100000\n", None),
        ("banana\n", None),
        ("9" * 400 + " 100000\n", None),
        ("9" * 5000 + "\n", None),
        ("100000 " + "9" * 400 + "\n", None),
        ("18446744073709551615 100000\n", 184467440737095.516),
    ],
)
def test_a_v2_limit_is_read_or_counts_as_none(host: Host, text: str, quota: float | None) -> None:
    host.write("cpu.max", text)
    assert host.quota == pytest.approx(quota)


def write_where_given(path: Path, text: str | None) -> None:
    """The file, or none where there is no text."""
    if text is not None:
        path.write_text(text)


@pytest.mark.parametrize(
    ("quota_us", "period_us", "quota"),
    [
        ("150000\n", "100000\n", 1.5),
        ("-1\n", "100000\n", None),
        ("0\n", "100000\n", None),
        ("150000\n", "0\n", None),
        ("150000\n", "", None),
        ("", "100000\n", None),
        ("150000\n", None, None),
        (None, "100000\n", None),
        ("1 2\n", "100000\n", None),
    ],
)
def test_a_v1_limit_is_read_or_counts_as_none(
    tmp_path: Path, quota_us: str | None, period_us: str | None, quota: float | None
) -> None:
    write_where_given(tmp_path / "cpu.cfs_quota_us", quota_us)
    write_where_given(tmp_path / "cpu.cfs_period_us", period_us)
    assert limit_at(tmp_path).quota == quota


def test_cpu_shares_are_no_limit(host: Host) -> None:
    host.write("cpu.weight", "10\n")
    host.write("cpu.shares", "256\n")
    assert host.quota is None


def test_a_controller_mounted_with_another_is_found(host: Host) -> None:
    host.process("4:cpuacct,cpu:/a", "0::/elsewhere")
    host.mounts(V1_MOUNT.format(top="/", point="/sys/fs/cgroup/cpuacct,cpu", controllers="cpuacct,cpu"))
    host.write("cpuacct,cpu/a/cpu.cfs_quota_us", "250000\n")
    host.write("cpuacct,cpu/a/cpu.cfs_period_us", "100000\n")
    assert host.quota == 2.5


def test_a_hybrid_host_is_read_where_its_cpu_controller_is(host: Host) -> None:
    host.process("4:cpu:/a", "0::/b")
    host.mounts(
        V2_MOUNT.format(top="/", point="/sys/fs/cgroup/unified"),
        V1_MOUNT.format(top="/", point="/sys/fs/cgroup/cpu", controllers="cpu"),
    )
    host.write("unified/b/cpu.max", "10000 100000\n")
    host.write("cpu/a/cpu.cfs_quota_us", "250000\n")
    host.write("cpu/a/cpu.cfs_period_us", "100000\n")
    assert host.quota == 2.5


def test_a_path_with_colons_is_one_path(host: Host) -> None:
    host.process("0::/kubepods-pod1.slice:cri-containerd:ab12")
    host.write("kubepods-pod1.slice:cri-containerd:ab12/cpu.max", "350000 100000\n")
    assert host.quota == 3.5


def test_a_mount_that_starts_below_the_root_is_read_from_there(host: Host) -> None:
    host.process("0::/kubepods/pod1/c1/inner")
    host.mounts(V2_MOUNT.format(top="/kubepods/pod1/c1", point="/sys/fs/cgroup"))
    host.write("inner/cpu.max", "400000 100000\n")
    host.write("cpu.max", "200000 100000\n")
    assert host.quota == 2.0


def test_a_mount_whose_root_only_begins_alike_is_another_cgroup(host: Host) -> None:
    host.process("0::/kubepods/pod10/c1")
    host.mounts(V2_MOUNT.format(top="/kubepods/pod1", point="/sys/fs/cgroup"))
    host.write("0/c1/cpu.max", "100000 100000\n")
    host.write("cpu.max", "200000 100000\n")
    assert host.quota == 2.0


@pytest.mark.parametrize("path", ["/../../user.slice", "/a/../../b", "/other/place"])
def test_a_path_that_no_mount_shows_is_read_at_the_mount_point(host: Host, path: str) -> None:
    host.process(f"0::{path}")
    host.mounts(V2_MOUNT.format(top="/a/b/c", point="/sys/fs/cgroup"))
    host.write("cpu.max", "200000 100000\n")
    assert host.quota == 2.0


@pytest.mark.parametrize("text", ["", "banana\n", "1:\n", "0::\n", "0:relative\n", "\x00\n", ":::::\n"])
def test_a_process_file_that_names_no_cgroup_leads_to_the_root(host: Host, text: str) -> None:
    host.proc_cgroup.write_text(text)
    host.write("cpu.max", "200000 100000\n")
    assert host.quota == 2.0


def test_a_missing_process_file_leads_to_the_root(host: Host) -> None:
    host.proc_cgroup.unlink()
    host.write("cpu.max", "200000 100000\n")
    assert host.quota == 2.0


def test_without_a_mount_table_the_usual_layout_is_read(host: Host) -> None:
    host.process("0::/a")
    host.mountinfo.unlink()
    host.write("a/cpu.max", "200000 100000\n")
    assert host.quota == 2.0
    assert cgroup_cpu_quota(host.root, host.proc_cgroup) == 2.0


@pytest.mark.parametrize("folder", ["cpu,cpuacct", "cpuacct,cpu", "cpu"])
def test_without_a_mount_table_a_v1_controller_is_found_in_its_usual_folders(host: Host, folder: str) -> None:
    host.process("4:cpu,cpuacct:/a")
    host.write(f"{folder}/a/cpu.cfs_quota_us", "250000\n")
    host.write(f"{folder}/a/cpu.cfs_period_us", "100000\n")
    assert cgroup_cpu_quota(host.root, host.proc_cgroup) == 2.5


@pytest.mark.parametrize(
    "line",
    [
        "banana",
        "",
        "30 23 0:26 / /sys/fs/cgroup rw",
        "30 23 0:26 / /sys/fs/cgroup rw - cgroup2",
        " - - - ",
        "30 23 - cgroup2 cgroup2 rw",
    ],
)
def test_a_malformed_line_of_the_mount_table_is_passed_over(host: Host, line: str) -> None:
    host.mounts(line, V2_MOUNT.format(top="/", point="/sys/fs/cgroup"))
    host.write("cpu.max", "200000 100000\n")
    assert host.quota == 2.0


def test_a_mount_point_with_blanks_is_found(host: Host) -> None:
    host.mounts(V2_MOUNT.format(top="/", point="/sys/fs/cgroup/a\\040b\\134c"))
    host.write("a b\\c/cpu.max", "200000 100000\n")
    assert host.quota == 2.0


def test_two_mounts_that_show_different_ancestors_are_both_read(host: Host) -> None:
    """A container may see its own cgroup at one place and the whole tree (a host mount) at another."""
    host.process("0::/pod1/c1")
    host.mounts(
        V2_MOUNT.format(top="/pod1/c1", point="/sys/fs/cgroup"),
        V2_MOUNT.format(top="/", point="/host/sys/fs/cgroup"),
    )
    host.write("cpu.max", "800000 100000\n")
    whole = host.root.parents[2] / "host" / "sys" / "fs" / "cgroup" / "pod1"
    whole.mkdir(parents=True)
    (whole / "cpu.max").write_text("300000 100000\n")
    assert host.quota == 3.0


def test_a_mount_that_another_covers_is_not_read(host: Host) -> None:
    """Below the covering mount the same path would be another cgroup."""
    host.process("0::/docker/x/a")
    host.mounts(
        V2_MOUNT.format(top="/", point="/sys/fs/cgroup"),
        V2_MOUNT.format(top="/docker/x", point="/sys/fs/cgroup"),
    )
    host.write("docker/x/a/cpu.max", "10000 100000\n")
    host.write("a/cpu.max", "200000 100000\n")
    assert host.quota == 2.0


def test_the_cpuset_is_that_of_the_nearest_level_that_tells(host: Host) -> None:
    host.process("0::/a/b")
    host.write("cpuset.cpus.effective", "0-7\n")
    host.write("a/cpuset.cpus.effective", "2-5\n")
    host.write("a/b/cpuset.cpus", "\n")
    assert host.cpuset == frozenset({2, 3, 4, 5})


def test_effective_cpus_count_before_configured_ones(host: Host) -> None:
    host.write("cpuset.cpus", "0-7\n")
    host.write("cpuset.cpus.effective", "0-3\n")
    assert host.cpuset == frozenset({0, 1, 2, 3})


@pytest.mark.parametrize("text", ["", "\n", "banana\n", "0-\n"])
def test_a_malformed_cpuset_is_not_known(host: Host, text: str) -> None:
    host.write("cpuset.cpus.effective", text)
    assert host.cpuset is None
