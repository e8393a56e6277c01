"""What the self-test reads about its cgroup, on trees of files."""

from pathlib import Path

import pytest

from hostflag_native.selftest.environment import CgroupFiles, cpu_limit, describe_environment, nvidia_driver, throttling


def _tree(base: Path, files: dict[str, str]) -> CgroupFiles:
    for name, text in files.items():
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return CgroupFiles(proc_root=base / "proc", cgroup_root=base / "cgroup")


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/\n", "cgroup/cpu.max": "max 100000\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "cgroup/cpu.max": "90000 100000\n"}, 0.9),
        (
            {
                "proc/self/cgroup": "0::/kubepods/pod\n",
                "cgroup/kubepods/pod/cpu.max": "max 100000\n",
                "cgroup/kubepods/cpu.max": "150000 100000\n",
            },
            1.5,
        ),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "cgroup/a/b/cpu.max": "400000 100000\n",
                "cgroup/a/cpu.max": "200000 100000\n",
            },
            2.0,
        ),
        (
            {
                "proc/self/cgroup": "9:name=systemd:/x\n4:cpu,cpuacct:/a\n",
                "cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "50000\n",
                "cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
            },
            0.5,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/a\n",
                "cgroup/cpu/a/cpu.cfs_quota_us": "-1\n",
                "cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
            },
            None,
        ),
        ({"proc/self/cgroup": "0::/not/mounted/here\n", "cgroup/cpu.max": "70000 100000\n"}, 0.7),
        ({"proc/self/cgroup": "0::/\n", "cgroup/cpu.max": ""}, None),
        ({"proc/self/cgroup": "0::/\n", "cgroup/cpu.max": "100000 0"}, None),
        ({"proc/self/cgroup": "nonsense\n", "cgroup/cpu.max": "nonsense"}, None),
    ],
    ids=[
        "nothing",
        "no-limit",
        "own",
        "parent",
        "tightest",
        "v1",
        "v1-none",
        "unmounted",
        "empty",
        "zero-period",
        "odd",
    ],
)
def test_the_cpu_limit_is_the_least_of_the_whole_chain(
    tmp_path: Path, files: dict[str, str], limit: float | None
) -> None:
    assert cpu_limit(_tree(tmp_path, files)) == limit


def test_throttling_is_read_as_far_as_it_is_told(tmp_path: Path) -> None:
    files = _tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "cgroup/cpu.stat": "usage_usec 5\nnr_periods 7\nnr_throttled 3\nthrottled_usec 9\nodd\nnr_bursts x\n",
        },
    )
    assert throttling(files) == {"nr_periods": 7, "nr_throttled": 3, "throttled_usec": 9}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n", "535.104.05"),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build  (b@U22-I3-A17)\n"
            "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n",
            "570.133.20",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.65  Release Build\n", "580.65"),
        ("nonsense\n", None),
    ],
    ids=["proprietary", "open", "arm", "odd"],
)
def test_the_drivers_own_version_is_that_of_its_kernel_module(tmp_path: Path, text: str, version: str | None) -> None:
    assert nvidia_driver(_tree(tmp_path, {"proc/driver/nvidia/version": text})) == version


def test_without_an_nvidia_module_there_is_no_version(tmp_path: Path) -> None:
    assert nvidia_driver(_tree(tmp_path, {})) is None


def test_the_description_works_on_this_machine() -> None:
    described = describe_environment(CgroupFiles())
    assert described["cpusAllowedCount"] >= 1
    assert described["timerSlackNs"] >= 1
