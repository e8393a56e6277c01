"""NVML asked through its real calling convention, of a stand-in library compiled for the test."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cpuplan.host.nvml import NvmlAddresses

SOURCE = r"""
#include <string.h>
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci_info;
static int gpu, mig;
int nvmlInit_v2(void) { return INIT_RESULT; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle)
{
    if (strcmp(uuid, "GPU-1") == 0) { *handle = &gpu; return 0; }
    if (strcmp(uuid, "MIG-1") == 0) { *handle = &mig; return 0; }
    return 6;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *handle, void **parent)
{
    if (handle != &mig) return 2;
    *parent = &gpu;
    return 0;
}
int nvmlDeviceGetPciInfo_v3(void *handle, pci_info *info)
{
    if (handle != &gpu) return 2;
    strcpy(info->legacy, "0000:1B:00.0");
    strcpy(info->bus_id, "00000000:1B:00.0");
    return 0;
}
"""


def stand_in(folder: Path, *, init_result: int = 0) -> str:
    """A compiled stand-in for libnvidia-ml.so.1."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs a C compiler: install gcc or clang")
    source, library = folder / "nvml.c", folder / "libnvidia-ml.so.1"
    source.write_text(SOURCE)
    subprocess.run(
        [compiler, "-shared", "-fPIC", f"-DINIT_RESULT={init_result}", "-o", library, source], check=True, timeout=60
    )
    return str(library)


def test_gpus_and_mig_devices_have_their_gpus_address(tmp_path: Path) -> None:
    nvml = NvmlAddresses(stand_in(tmp_path))
    assert [nvml("GPU-1"), nvml("MIG-1")] == ["00000000:1B:00.0"] * 2
    assert nvml.trouble is None


def test_a_device_that_nvml_does_not_know_has_none(tmp_path: Path) -> None:
    nvml = NvmlAddresses(stand_in(tmp_path))
    assert nvml("GPU-2") is None
    assert nvml.trouble == "NVML: nvmlDeviceGetHandleByUUID answered with error 6"


def test_a_driver_that_is_not_loaded_has_no_answer(tmp_path: Path) -> None:
    nvml = NvmlAddresses(stand_in(tmp_path, init_result=9))
    assert nvml("GPU-1") is None
    assert nvml.trouble == "NVML: nvmlInit_v2 answered with error 9"


def test_a_library_that_comes_later_is_found_then(tmp_path: Path) -> None:
    nvml = NvmlAddresses(str(tmp_path / "libnvidia-ml.so.1"))
    assert nvml("GPU-1") is None
    assert (nvml.trouble or "").startswith(f"NVML cannot be loaded from {tmp_path}/libnvidia-ml.so.1: ")
    stand_in(tmp_path)
    assert nvml("GPU-1") == "00000000:1B:00.0"


def test_a_library_that_is_another_one_has_no_answer() -> None:
    nvml = NvmlAddresses("libc.so.6")
    assert nvml("GPU-1") is None
    assert "nvmlInit_v2" in (nvml.trouble or "")
