"""Device ids of every kind, placed from files; what cannot be placed is a sentence."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpuplan.host.devices import PlacedDevice, UnplacedDevice, _parse_information, place_device, read_nvidia_gpus
from cpuplan.host.root import HostRoot
from tests.cases import cases_folder, each_case

FIRST = "GPU-00000000-0000-4000-8000-000000000001"
SECOND = "GPU-00000000-0000-4000-8000-000000000002"
ASLEEP = "GPU-????????-????-????-????-????????????"
MIG = "MIG-00000000-0000-4000-8000-00000000000a"


@pytest.fixture
def root(tmp_path: Path) -> HostRoot:
    """An empty host."""
    return HostRoot.at(tmp_path)


def write_gpu(root: HostRoot, address: str, uuid: str, minor: int) -> None:
    """A GPU of NVIDIA's driver, with the driver's own blanks."""
    folder = root.nvidia_folder / address
    folder.mkdir(parents=True)
    lines = [
        "Model: \t\t NVIDIA GPU",
        f"GPU UUID: \t {uuid}",
        f"Bus Location: \t {address}",
        f"Device Minor: \t {minor}",
    ]
    (folder / "information").write_text("\n".join(lines) + "\n")


def write(path: Path, text: str) -> None:
    """A file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def address_of(root: HostRoot, device_id: str) -> str:
    """The address a device is placed at."""
    placed = place_device(root, device_id)
    assert isinstance(placed, PlacedDevice), placed
    return placed.address


def why_not(root: HostRoot, device_id: str) -> UnplacedDevice:
    """Why a device is not placed."""
    unplaced = place_device(root, device_id)
    assert isinstance(unplaced, UnplacedDevice), unplaced
    return unplaced


@pytest.mark.parametrize("device_id", [SECOND, f"{SECOND}::0", f"{SECOND}::12", SECOND.lower(), f"MIG-{SECOND}/3/0"])
def test_an_nvidia_uuid_is_placed_through_the_drivers_files(root: HostRoot, device_id: str) -> None:
    write_gpu(root, "0000:1b:00.0", FIRST, 0)
    write_gpu(root, "0000:43:00.0", SECOND, 1)
    assert address_of(root, device_id) == "0000:43:00.0"


def test_the_file_that_places_a_device_is_named(root: HostRoot) -> None:
    write_gpu(root, "0000:1b:00.0", FIRST, 0)
    path = f"{root.nvidia_folder}/0000:1b:00.0/information"
    assert place_device(root, FIRST) == PlacedDevice("0000:1b:00.0", path)


@pytest.mark.parametrize("device_id", ["nvidia3", "nvidia3/gi1", "nvidia3/vgpu0", "nvidia3/gi1/vgpu0"])
def test_a_minor_number_is_not_an_index(root: HostRoot, device_id: str) -> None:
    write_gpu(root, "0000:1b:00.0", FIRST, 3)
    write_gpu(root, "0000:43:00.0", SECOND, 0)
    assert address_of(root, device_id) == "0000:1b:00.0"


@pytest.mark.parametrize(
    ("device_id", "address"),
    [
        ("0000:C1:00.0", "0000:c1:00.0"),
        ("00000000:C1:00.0", "0000:c1:00.0"),
        ("10000:01:00.0", "10000:01:00.0"),
        ("0000:c1:00.0-1", "0000:c1:00.0"),
        ("0000:c1:00.0::2", "0000:c1:00.0"),
    ],
)
def test_a_pci_address_is_its_own_place(root: HostRoot, device_id: str, address: str) -> None:
    assert address_of(root, device_id) == address


def test_a_uuid_that_is_not_initialised_may_come_later(root: HostRoot) -> None:
    write_gpu(root, "0000:1b:00.0", FIRST, 0)
    write_gpu(root, "0000:43:00.0", ASLEEP, 1)
    unplaced = why_not(root, SECOND)
    assert unplaced.may_change
    assert "of which 1 are not initialised yet (0000:43:00.0)" in unplaced.why


def test_a_uuid_that_no_gpu_has_is_final(root: HostRoot) -> None:
    write_gpu(root, "0000:1b:00.0", FIRST, 0)
    unplaced = why_not(root, SECOND)
    assert not unplaced.may_change
    assert unplaced.why == f"{SECOND} is not among the 1 GPUs of {root.nvidia_folder}"


def test_without_a_driver_the_folder_and_the_remedy_are_named(root: HostRoot) -> None:
    unplaced = why_not(root, FIRST)
    assert unplaced.may_change
    assert "describes no GPU; expected NVIDIA's driver to be loaded, and NVIDIA_VISIBLE_DEVICES unset" in unplaced.why


def test_a_mig_instance_is_placed_by_nvml(root: HostRoot) -> None:
    placed = place_device(root, f"{MIG}::1", nvml={MIG: "00000000:1B:00.0"}.get)
    assert placed == PlacedDevice("0000:1b:00.0", "NVML")


def test_a_mig_instance_of_the_only_gpu_needs_no_nvml(root: HostRoot) -> None:
    write_gpu(root, "0000:1b:00.0", FIRST, 0)
    assert address_of(root, MIG) == "0000:1b:00.0"


def test_a_mig_instance_of_one_of_several_gpus_is_never_guessed(root: HostRoot) -> None:
    write_gpu(root, "0000:1b:00.0", FIRST, 0)
    write_gpu(root, "0000:43:00.0", SECOND, 1)
    assert "is an instance of one of 2 GPUs; only NVML tells which one" in why_not(root, MIG).why


def test_an_amd_partition_is_placed_through_its_render_node(root: HostRoot) -> None:
    (root.sys / "devices/platform/amdgpu_xcp_3/drm/renderD131").mkdir(parents=True)
    nodes = root.sys / "class/kfd/kfd/topology/nodes"
    write(nodes / "0/properties", "cpu_cores_count 96\ndrm_render_minor 0\nlocation_id 0\ndomain 0\n")
    location = (0xC3 << 8) | (2 << 28)
    write(nodes / "5/properties", f"simd_count 304\nlocation_id {location}\ndomain 1\ndrm_render_minor 131\n")
    assert address_of(root, "amdgpu_xcp_3") == "0001:c3:00.0"


def test_an_amd_partition_without_a_kfd_node_is_a_sentence(root: HostRoot) -> None:
    (root.sys / "devices/platform/amdgpu_xcp_3/drm/renderD131").mkdir(parents=True)
    assert "has drm_render_minor 131" in why_not(root, "amdgpu_xcp_3").why
    assert "has no render node" in why_not(root, "amdgpu_xcp_4").why


def test_an_intel_card_is_placed_through_its_uevent(root: HostRoot) -> None:
    write(root.sys / "class/drm/card1/device/uevent", "DRIVER=i915\nPCI_CLASS=38000\nPCI_SLOT_NAME=0000:4D:00.0\n")
    assert address_of(root, "card1-0") == "0000:4d:00.0"
    assert "names no PCI_SLOT_NAME" in why_not(root, "card2-0").why


@pytest.mark.parametrize(
    "device_id", ["", "0", "tpu0", "GPU-", "../../etc/passwd", "card../x-0", "x" * 5000, "GPU-x\ny"]
)
def test_an_unknown_form_is_a_sentence(root: HostRoot, device_id: str) -> None:
    assert why_not(root, device_id).why.startswith("device id ")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "GPU UUID",
        "GPU UUID: N/A",
        "Device Minor: ten\nGPU UUID:",
        "\0\0",
        ":::",
        "Device Minor: ٣",
        "Device Minor: " + "9" * 99,
    ],
    ids=["empty", "no colon", "no uuid", "no numbers", "binary", "colons", "other digits", "endless number"],
)
def test_a_malformed_information_file_still_has_its_folders_address(root: HostRoot, text: str) -> None:
    write(root.nvidia_folder / "0000:1B:00.0/information", text)
    (gpu,) = read_nvidia_gpus(root)
    assert (gpu.address, gpu.uuid, gpu.minor) == ("0000:1b:00.0", None, None)


@given(st.text(), st.text())
def test_any_text_in_an_information_file_is_read(text: str, name: str) -> None:
    assert _parse_information(text, name, "path").path == "path"


INFORMATION_CASES = sorted((cases_folder() or Path()).joinpath("nvidia_information").glob("*.txt"))


@each_case("name", [path.stem for path in INFORMATION_CASES if path.stem != "README"])
def test_information_files_of_real_drivers_are_read(cases: Path, name: str) -> None:
    text = (cases / "nvidia_information" / f"{name}.txt").read_text()
    gpu = _parse_information(text, "folder", "path")
    told = {
        "aws-a10g": ("0000:00:1e.0", "GPU-82523fd8-3897-f599-d088-ccd04ae45ec1", 3),
        "colab-k80": ("0000:00:04.0", "GPU-c6398fd0-9366-8e15-5d6a-369da852f85b", 0),
        "gtx650-no-device-minor": ("0000:04:00.0", "GPU-e3f822b9-8c5f-95a5-b379-8dfdeefd7758", None),
        "rtx3090-driver590": ("0000:01:00.0", "GPU-eaf23aa1-4d3d-596c-da66-b86b0e5db584", 0),
    }
    assert (gpu.address, gpu.uuid, gpu.minor) == told[name]
