"""The CPUs of this very process."""

import errno
import os

import pytest

from cpuplan.host.affinity import PINNABLE, process_mask, usable_cpus


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
