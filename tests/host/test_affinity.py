"""The CPUs of this very process."""

import errno
import os
from pathlib import Path

import pytest

from cpuplan.host.affinity import PINNABLE, process_mask, usable_cpus, visible_quota
from cpuplan.host.root import HostRoot


def test_linux_can_set_affinity() -> None:
    assert PINNABLE


def test_the_mask_is_the_affinity_that_the_kernel_reports() -> None:
    assert process_mask() == os.sched_getaffinity(0)


def test_where_a_seccomp_filter_refuses_the_question_procfs_has_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    mask = process_mask()

    def refuse(_: int) -> set[int]:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "sched_getaffinity", refuse)
    assert process_mask() == mask


def test_at_least_one_cpu_and_at_most_the_mask_is_usable() -> None:
    assert 1 <= usable_cpus() <= len(process_mask())


def test_a_quota_is_seen_through_the_trees_of_a_host(tmp_path: Path) -> None:
    root = HostRoot.at(tmp_path)
    own = tmp_path / "proc" / "self"
    own.mkdir(parents=True)
    (own / "cgroup").write_text("0::/\n")
    assert visible_quota(root) is None
    root.cgroup.mkdir(parents=True)
    (root.cgroup / "cgroup.controllers").write_text("cpu\n")
    (root.cgroup / "cpu.max").write_text("350000 100000\n")
    assert visible_quota(root) == 3.5
