"""The GPU runtime's logical devices: a torch that knows, else a driver that a child process asks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from cpuplan.inprocess import gpuruntime
from cpuplan.inprocess.devices import device_addresses

DRIVER = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int cuInit(unsigned int flags) { if (getenv("STUB_HANGS")) sleep(60); return getenv("STUB_FAILS") ? 100 : 0; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int index) { *device = index + 7; return 0; }
int cuDeviceGetPCIBusId(char *text, int size, int device) {
    snprintf(text, size, "0000:%02X:00.0", device == 7 ? 0x9d : 0x1b); return 0; }
"""

Torch = Callable[..., None]


@pytest.fixture(scope="module")
def driver_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a stand-in libcuda.so.1 of two devices."""
    folder: Path = tmp_path_factory.mktemp("driver")
    source = folder / "driver.c"
    source.write_text(DRIVER)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(source)], check=True)
    return folder


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    """Puts a torch in place whose `cuda` is initialised or not."""

    def load(*, is_initialised: bool, error: Exception | None = None) -> None:
        def properties(index: int) -> SimpleNamespace:
            if error is not None:
                raise error
            return SimpleNamespace(pci_domain_id=1, pci_bus_id=0x50 + index, pci_device_id=0)

        cuda = SimpleNamespace(is_initialized=lambda: is_initialised, get_device_properties=properties)
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    return load


def test_the_driver_is_asked_in_its_own_order_without_torch(
    torch: Torch, driver_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver_folder))
    assert device_addresses(["cuda:0", "cuda:1", "cuda:2"]) == ["0000:9d:00.0", "0000:1b:00.0", None]


def test_this_process_never_loads_the_driver(
    torch: Torch, driver_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver_folder))
    device_addresses(["cuda:0"])
    assert str(driver_folder) not in Path("/proc/self/maps").read_text(encoding="utf-8")


def test_a_torch_that_has_not_touched_the_device_is_left_alone(
    torch: Torch, driver_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver_folder))
    torch(is_initialised=False, error=RuntimeError("it was asked"))
    assert device_addresses(["cuda:0"]) == ["0000:9d:00.0"]


def test_a_torch_that_holds_the_device_is_asked(torch: Torch) -> None:
    torch(is_initialised=True)
    assert device_addresses(["cuda:1"]) == ["0001:51:00.0"]


def test_a_driver_that_fails_or_is_not_there_reports_nothing(
    torch: Torch, driver_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert device_addresses(["cuda:0", "xpu:0"]) == [None, None]
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver_folder))
    monkeypatch.setenv("STUB_FAILS", "1")
    assert device_addresses(["cuda:0"]) == [None]


def test_a_driver_that_hangs_is_given_up(torch: Torch, driver_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpuruntime, "ASK_SECONDS", 0.5)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver_folder))
    monkeypatch.setenv("STUB_HANGS", "1")
    assert device_addresses(["cuda:0"]) == [None]
