"""The boot id and a process's allowed CPUs."""

from pathlib import Path

import pytest

from cpuplan.host.identity import read_allowed_cpus, read_boot_id
from cpuplan.host.root import HostRoot
from cpuplan.model.cpulist import parse_cpu_list


def test_the_boot_id_is_the_kernels(tmp_path: Path) -> None:
    path = tmp_path / "proc/sys/kernel/random/boot_id"
    path.parent.mkdir(parents=True)
    path.write_text("b5a1\n")
    assert read_boot_id(HostRoot.at(tmp_path)) == "b5a1"


def test_a_tree_without_a_boot_id_has_an_empty_one(tmp_path: Path) -> None:
    assert read_boot_id(HostRoot.at(tmp_path)) == ""


def test_allowed_cpus_are_those_of_the_status_file(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-3,8\n")
    assert read_allowed_cpus(tmp_path / "status") == parse_cpu_list("0-3,8")


@pytest.mark.parametrize("text", ["", "Cpus_allowed_list:\t", "Cpus_allowed_list:\tx", "Cpus_allowed_list"])
def test_a_status_that_does_not_tell_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "status").write_text(text)
    assert read_allowed_cpus(tmp_path / "status") is None


def test_a_missing_status_is_none(tmp_path: Path) -> None:
    assert read_allowed_cpus(tmp_path / "status") is None
