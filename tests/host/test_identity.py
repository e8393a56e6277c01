"""The boot id."""

from pathlib import Path

from cpuplan.host.identity import read_boot_id
from cpuplan.host.root import HostRoot


def test_the_boot_id_is_the_kernels(tmp_path: Path) -> None:
    path = tmp_path / "proc/sys/kernel/random/boot_id"
    path.parent.mkdir(parents=True)
    path.write_text("b5a1\n")
    assert read_boot_id(HostRoot.at(tmp_path)) == "b5a1"


def test_a_tree_without_a_boot_id_has_an_empty_one(tmp_path: Path) -> None:
    assert read_boot_id(HostRoot.at(tmp_path)) == ""
