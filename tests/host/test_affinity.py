"""The CPUs of this very process."""

import os

from cpuplan.host.affinity import PINNABLE, process_mask, usable_cpus


def test_linux_can_set_affinity() -> None:
    assert PINNABLE


def test_the_mask_is_the_affinity_that_the_kernel_reports() -> None:
    assert process_mask() == os.sched_getaffinity(0)


def test_at_least_one_cpu_and_at_most_the_mask_is_usable() -> None:
    assert 1 <= usable_cpus() <= len(process_mask())
