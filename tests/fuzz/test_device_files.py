"""Device ids, and the files that place them: a place or a sentence, never an exception."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cpuplan.host.devices import PlacedDevice, place_device, read_nvidia_gpus
from cpuplan.host.override import read_override
from cpuplan.host.root import HostRoot
from cpuplan.model.errors import OverrideError
from cpuplan.model.topology import HostTopology, PciFunction, is_pci_address
from cpuplan.planning.override import override_topology
from tests.fuzz.effort import fuzz
from tests.fuzz.mutation import file_contents, mutated, outcome_of

UUID = "GPU-00000000-0000-4000-8000-000000000001"
IDS = (
    UUID,
    f"{UUID}::3",
    "MIG-00000000-0000-4000-8000-00000000000a",
    f"MIG-{UUID}/3/0",
    "nvidia3/gi1/vgpu0",
    "nvidia0",
    "0000:c1:00.0",
    "0000:c1:00.0::1",
    "amdgpu_xcp_1",
    "card0-0",
)
INFORMATION = (
    f"Model: \t\t NVIDIA H100\nIRQ:   \t\t 40\nGPU UUID: \t {UUID}\nBus Type: \t PCIe\n"
    "Bus Location: \t 0000:1b:00.0\nDevice Minor: \t 3\n",
    "GPU UUID: \t GPU-????????-????-????-????-????????????\nBus Location: \t 0000:1b:00.0\n",
    "Device Minor: 0",
)
PROPERTIES = (
    "cpu_cores_count 0\nsimd_count 304\nlocation_id 49408\ndomain 0\ndrm_render_minor 129\n",
    "location_id 16777216\ndomain 1\ndrm_render_minor 129",
)
UEVENT = ("DRIVER=i915\nPCI_CLASS=30000\nPCI_SLOT_NAME=0000:03:00.0\n", "PCI_SLOT_NAME=")
OWN_OVERRIDE = (
    '[[gpus]]\naddress = "0000:1b:00.0"\nnode = 0\ncpus = "0-55,112-167"\n\n[[gpus]]\naddress = "43:00.0"\nnode = 1\n',
    "gpus = [{address = '0000:1b:00.0', node = 0}]",
)
NCCL_OVERRIDE = (
    '<system version="1"><cpu numaid="0" affinity="00ff,ffffffff" arch="x86_64"><pci busid="0000:1b:00.0" '
    'class="0x030200" link_speed="32.0 GT/s PCIe"><gpu dev="0" sm="90"/></pci></cpu></system>',
)


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


FILES = st.fixed_dictionaries(
    {
        "proc/driver/nvidia/gpus/0000:1b:00.0/information": file_contents(INFORMATION),
        "sys/class/kfd/kfd/topology/nodes/1/properties": file_contents(PROPERTIES),
        "sys/class/drm/card0/device/uevent": file_contents(UEVENT),
        "sys/devices/platform/amdgpu_xcp_1/drm/renderD129/uevent": st.just(b""),
    }
)


@fuzz
@given(device_id=mutated(IDS), files=FILES, answer=st.none() | mutated(("00000000:1B:00.0",)))
def test_a_device_is_placed_or_it_is_said_why_not(
    tmp_path: Path, device_id: str, files: dict[str, bytes], answer: str | None
) -> None:
    root = HostRoot.at(tmp_path)
    for name, content in files.items():
        write(tmp_path / name, content)
    for asked in (device_id, "amdgpu_xcp_1", "card0-0", "nvidia3", UUID):
        place = place_device(root, asked, nvml=lambda _: answer)
        said = place.source if isinstance(place, PlacedDevice) else place.why
        assert said


@fuzz
@given(information=file_contents(INFORMATION), folder=st.sampled_from(("0000:1b:00.0", "x", "…")))
def test_what_nvidias_driver_says_of_a_gpu_is_read_or_unknown(tmp_path: Path, information: bytes, folder: str) -> None:
    root = HostRoot.at(tmp_path)
    write(root.nvidia_folder / folder / "information", information)
    assert all(gpu.minor is None or 0 <= gpu.minor < 100_000 for gpu in read_nvidia_gpus(root))


@fuzz
@given(content=file_contents(OWN_OVERRIDE) | file_contents(NCCL_OVERRIDE))
def test_an_override_is_placements_or_an_error_that_names_the_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "override"
    write(path, content)
    found = outcome_of(lambda: read_override(path), OverrideError)
    if isinstance(found, Exception):
        assert str(path) in str(found)
        return
    assert all(is_pci_address(placement.address) and placement.node >= 0 for placement in found.placements)
    function = PciFunction("0000:1b:00.0", "0x10de", "0x030200", "0", frozenset({0}))
    result = override_topology(HostTopology(frozenset({0}), {}, (function,)), found.placements)
    assert len(result.topology.functions) == 1
