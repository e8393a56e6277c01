"""Processes with GPUs, from the device files that they have open."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cpuplan.host.devices import PlacedDevice
from cpuplan.host.gpuprocesses import read_environment, read_gpu_processes
from cpuplan.host.root import HostRoot
from tests.machines import write_machine


@pytest.fixture
def root(tmp_path: Path) -> HostRoot:
    """A two-socket server with eight H100 and no process."""
    return write_machine("h100-server", tmp_path)


def make_process(root: HostRoot, process_id: int, *files: str, name: str = "python3") -> Path:
    """A process with these files open."""
    folder = root.proc / str(process_id)
    (folder / "fd").mkdir(parents=True)
    for number, target in enumerate(files):
        (folder / "fd" / str(number)).symlink_to(target)
    (folder / "comm").write_text(f"{name}\n")
    return folder


def addresses(root: HostRoot) -> dict[int, list[str | None]]:
    """The places of each process's devices, in the order of their files."""
    return {
        process.process_id: [getattr(place, "address", None) for place in process.devices.values()]
        for process in read_gpu_processes(root).processes
    }


def test_a_process_with_open_device_files_has_those_gpus(root: HostRoot) -> None:
    make_process(
        root, 7, "/dev/null", "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm", "/dev/nvidia4", "/dev/nvidia0"
    )
    make_process(root, 8, "socket:[1]", "/tmp/nvidia0")
    assert addresses(root) == {7: ["0000:1b:00.0", "0000:9d:00.0"]}
    assert read_gpu_processes(root).processes[0].name == "python3"


def test_a_render_node_is_placed_through_its_uevent(root: HostRoot) -> None:
    uevent = root.sys / "class" / "drm" / "renderD128" / "device" / "uevent"
    uevent.parent.mkdir(parents=True)
    uevent.write_text("DRIVER=amdgpu\nPCI_SLOT_NAME=0000:c1:00.0\n")
    make_process(root, 7, "/dev/kfd", "/dev/dri/renderD128", "/dev/dri/card0")
    assert addresses(root) == {7: ["0000:c1:00.0"]}


def test_a_device_file_that_leads_nowhere_is_a_device_without_a_place(root: HostRoot) -> None:
    make_process(root, 7, "/dev/nvidia99")
    assert addresses(root) == {7: [None]}


def test_a_process_of_another_user_is_counted(root: HostRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    make_process(root, 7, "/dev/nvidia0")
    monkeypatch.setattr(os, "access", lambda *_: False)
    found = read_gpu_processes(root)
    assert (found.processes, found.hidden_count) == ((), 1)


def test_a_process_that_ends_meanwhile_is_no_process(root: HostRoot) -> None:
    (root.proc / "7").mkdir()
    assert read_gpu_processes(root).hidden_count == 0


def test_the_variables_that_a_process_started_with_are_read(root: HostRoot) -> None:
    (make_process(root, 7) / "environ").write_bytes(b"OMP_NUM_THREADS=8\0A=b=c\0odd\0")
    assert read_environment(7, root) == {"OMP_NUM_THREADS": "8", "A": "b=c"}
    assert read_environment(8, root) == {}


def test_a_real_process_with_an_open_file_is_looked_into() -> None:
    command = [sys.executable, "-c", "print(1, flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"X": "y"}) as process:
        assert process.stdout is not None
        process.stdout.readline()  # before it runs, the kernel may not know its environment yet
        assert read_environment(process.pid, HostRoot())["X"] == "y"
        assert process.pid not in {found.process_id for found in read_gpu_processes(HostRoot()).processes}
        process.communicate(b"\n")


def test_where_a_place_comes_from_is_kept(root: HostRoot) -> None:
    make_process(root, 7, "/dev/nvidia0")
    (process,) = read_gpu_processes(root).processes
    place = process.devices["nvidia0"]
    assert isinstance(place, PlacedDevice)
    assert place.source.endswith("0000:1b:00.0/information")
