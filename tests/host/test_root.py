"""Reading the kernel's small files, and where they are."""

import os
from pathlib import Path

import pytest

from cpuplan.host.root import MOST_BYTES, HostRoot, names_in, read_text
from cpuplan.model.errors import HostReadError


def test_a_tree_has_sys_proc_and_cgroupfs_below_one_folder() -> None:
    root = HostRoot.at(Path("/trees/node-1"))
    assert (str(root.sys), str(root.proc), str(root.cgroup)) == (
        "/trees/node-1/sys",
        "/trees/node-1/proc",
        "/trees/node-1/sys/fs/cgroup",
    )


def test_without_a_folder_the_trees_are_those_of_this_host() -> None:
    assert str(HostRoot().cpu_folder) == "/sys/devices/system/cpu"
    assert str(HostRoot().nvidia_folder) == "/proc/driver/nvidia/gpus"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/host/sys/bus/pci/devices", "/sys/bus/pci/devices"),
        ("/host/cgroup/kubepods/cpu.max", "/sys/fs/cgroup/kubepods/cpu.max"),
        ("/host/proc/self/status", "/proc/self/status"),
        ("/host/cgroups", "/host/cgroups"),
        ("the device id", "the device id"),
    ],
)
def test_a_path_below_a_tree_has_the_name_that_its_host_gives_it(path: str, name: str) -> None:
    root = HostRoot(Path("/host/sys"), Path("/host/proc"), Path("/host/cgroup"))
    assert root.kernel_name(path) == name
    assert HostRoot().kernel_name(name) == name


def test_a_text_comes_without_its_line_end(tmp_path: Path) -> None:
    (tmp_path / "online").write_text(" 0-3\n")
    assert read_text(tmp_path / "online") == "0-3"


def test_an_absent_file_a_folder_and_an_impossible_name_are_not_known(tmp_path: Path) -> None:
    assert [read_text(tmp_path / "absent"), read_text(tmp_path), read_text("a\x00b")] == [None, None, None]


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(b"\xff\xfe0-3")
    assert read_text(tmp_path / "odd") == "\ufffd\ufffd0-3"


def test_a_fifo_without_a_writer_is_empty_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert read_text(tmp_path / "fifo") == ""


def test_a_file_that_the_kernel_hands_out_piece_by_piece_is_read_to_its_end() -> None:
    """procfs answers one read with the whole lines that fit a page, however large the buffer is."""
    reader, writer = os.pipe2(os.O_DIRECT)
    try:
        os.write(writer, b"line 1\n")
        os.write(writer, b"line 2\n")
        os.close(writer)
        assert read_text(f"/proc/self/fd/{reader}") == "line 1\nline 2"
    finally:
        os.close(reader)


def test_reading_stops_where_no_kernel_file_goes(tmp_path: Path) -> None:
    (tmp_path / "endless").write_bytes(b"1" * (MOST_BYTES * 2))
    text = read_text(tmp_path / "endless")
    assert text is not None
    assert len(text) == MOST_BYTES


def test_an_absent_folder_has_no_names(tmp_path: Path) -> None:
    assert names_in(tmp_path / "absent") == []


def test_a_folder_without_cpus_is_refused_as_a_sysfs(tmp_path: Path) -> None:
    with pytest.raises(HostReadError, match=r"is no readable sysfs: .*devices/system/cpu: No such file") as refusal:
        HostRoot.at(tmp_path).require_sysfs()
    assert "--sysfs-root" in str(refusal.value)
