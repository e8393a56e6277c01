"""From a device id, as device plugins name it, to a PCI address.

| id | plugin | resolved through |
|---|---|---|
| `GPU-<uuid>`, with `::n` for a replica | NVIDIA | `GPU UUID` in /proc/driver/nvidia/gpus/*/information, else NVML |
| `MIG-GPU-<uuid>/g/c` (drivers before R470) | NVIDIA | the same: the id names its GPU |
| `MIG-<uuid>`, with `::n` | NVIDIA | NVML where it is given; else the only GPU of the host |
| `nvidia0`, `nvidia0/gi1`, `nvidia0/vgpu0`, `nvidia0/gi1/vgpu0` | GKE | `Device Minor` in the same files |
| `0000:c1:00.0`, with `-n` or `::n` | AMD, Intel | itself |
| `amdgpu_xcp_N` | AMD partitions | its render node's KFD node: `domain` and `location_id` |
| `card0-0` | Intel | `PCI_SLOT_NAME` in /sys/class/drm/card0/device/uevent |

What cannot be placed is an UnplacedDevice with a sentence, never an exception.

Source: drivers/gpu/drm/amd/amdkfd/kfd_topology.c of the Linux kernel (location_id: bus, device and function in
the low 16 bits, a partition's number above bit 28).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ..model.topology import normalise_address
from .root import HostRoot, names_in, read_text

_ADDRESS = r"[0-9a-f]{1,8}:[0-9a-f]{1,2}:[0-9a-f]{1,2}\.[0-7]"
_PCI_ADDRESS = re.compile(_ADDRESS, re.ASCII | re.IGNORECASE)
_PCI_ID = re.compile(rf"({_ADDRESS})(?:-[0-9]+|::[0-9]+)?", re.ASCII | re.IGNORECASE)
_UUID_ID = re.compile(r"((?:GPU|MIG)-[0-9a-f-]{8,64})(?:::[0-9]+)?", re.ASCII | re.IGNORECASE)
_OLD_MIG_ID = re.compile(r"MIG-(GPU-[0-9a-f-]{8,64})/[0-9]+/[0-9]+(?:::[0-9]+)?", re.ASCII | re.IGNORECASE)
_MINOR_ID = re.compile(r"nvidia([0-9]{1,5})(?:/gi[0-9]+)?(?:/vgpu[0-9]+)?", re.ASCII)
_PARTITION_ID = re.compile(r"(amdgpu_xcp_[0-9]{1,5})", re.ASCII)
_CARD_ID = re.compile(r"(card[0-9]{1,5})-[0-9]+", re.ASCII)
_PROPERTY = re.compile(r"^(\w+)[ \t]+([0-9]{1,20})[ \t\r]*$", re.ASCII | re.MULTILINE)
_RENDER_NODE = re.compile(r"renderD([0-9]{1,6})", re.ASCII)


@dataclass(frozen=True, slots=True)
class PlacedDevice:
    """Where a device is: its PCI address in sysfs form, and the file (or program) that says so."""

    address: str
    source: str


@dataclass(frozen=True, slots=True)
class UnplacedDevice:
    """Why a device's address is not known; `may_change` says that asking later may help."""

    why: str
    may_change: bool


@dataclass(frozen=True, slots=True)
class NvidiaGpu:
    """One `information` file of NVIDIA's driver.

    Attributes:
        address: from its Bus Location, else the folder's name.
        uuid: None where the driver has not initialised the device yet (`GPU-????…`) or says none.
        minor: the number in /dev/nvidiaN, None where the driver does not say (before 340).
        path: the file.
    """

    address: str
    uuid: str | None
    minor: int | None
    path: str


AddressOfUuid = Callable[[str], str | None]
"""NVML's answer: from the UUID of a GPU or MIG device to its GPU's PCI address, None where it knows none."""


def place_device(root: HostRoot, device_id: str, *, nvml: AddressOfUuid | None = None) -> PlacedDevice | UnplacedDevice:
    """The PCI address of the device that a device plugin calls `device_id`."""
    if match := _PCI_ID.fullmatch(device_id):
        return PlacedDevice(normalise_address(match[1]), "the device id")
    if match := _OLD_MIG_ID.fullmatch(device_id) or _UUID_ID.fullmatch(device_id):
        place = _place_mig if match[1].upper().startswith("MIG-") else _place_uuid
        return place(root, match[1], nvml)
    if match := _MINOR_ID.fullmatch(device_id):
        return _place_minor(root, int(match[1]))
    if match := _PARTITION_ID.fullmatch(device_id):
        return _place_partition(root, match[1])
    if match := _CARD_ID.fullmatch(device_id):
        return place_drm_node(root, match[1])
    return UnplacedDevice(
        f"device id {device_id[:80]!r} has none of the known forms (GPU-uuid, MIG-uuid, nvidiaN, card0-0, "
        "amdgpu_xcp_N or a PCI address)",
        may_change=False,
    )


def read_nvidia_gpus(root: HostRoot) -> tuple[NvidiaGpu, ...]:
    """The GPUs that NVIDIA's driver describes, in folder order; empty without the driver."""
    found = []
    for name in names_in(root.nvidia_folder):
        path = root.nvidia_folder / name / "information"
        text = read_text(path)
        if text is not None:
            found.append(_parse_information(text, name, str(path)))
    return tuple(found)


def _parse_information(text: str, folder_name: str, path: str) -> NvidiaGpu:
    """As loose as the files are: any blanks, any order, lines and whole fields missing."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(" ".join(key.split()).lower(), value.strip())
    location = fields.get("bus location", "")
    uuid = fields.get("gpu uuid", "")
    minor = fields.get("device minor", "")
    return NvidiaGpu(
        address=normalise_address(location if _PCI_ADDRESS.fullmatch(location) else folder_name),
        uuid=uuid if _UUID_ID.fullmatch(uuid) else None,
        minor=int(minor) if minor.isascii() and minor.isdigit() and len(minor) < 6 else None,
        path=path,
    )


def _place_uuid(root: HostRoot, uuid: str, nvml: AddressOfUuid | None) -> PlacedDevice | UnplacedDevice:
    gpus = read_nvidia_gpus(root)
    for gpu in gpus:
        if gpu.uuid is not None and gpu.uuid.lower() == uuid.lower():
            return PlacedDevice(gpu.address, gpu.path)
    address = None if nvml is None else nvml(uuid)
    if address is not None:
        return PlacedDevice(normalise_address(address), "NVML")
    return _missing_nvidia_gpu(root, uuid, gpus)


def _place_minor(root: HostRoot, minor: int) -> PlacedDevice | UnplacedDevice:
    gpus = read_nvidia_gpus(root)
    for gpu in gpus:
        if gpu.minor == minor:
            return PlacedDevice(gpu.address, gpu.path)
    return _missing_nvidia_gpu(root, f"device minor {minor}", gpus)


def _missing_nvidia_gpu(root: HostRoot, what: str, gpus: tuple[NvidiaGpu, ...]) -> UnplacedDevice:
    if not gpus:
        return UnplacedDevice(
            f"{what} cannot be placed: {root.nvidia_folder} describes no GPU; expected NVIDIA's driver to be "
            "loaded, and NVIDIA_VISIBLE_DEVICES unset for the agent",
            may_change=True,
        )
    asleep = [gpu.address for gpu in gpus if gpu.uuid is None]
    if asleep:
        return UnplacedDevice(
            f"{what} is not among the {len(gpus)} GPUs of {root.nvidia_folder}, of which {len(asleep)} are not "
            f"initialised yet ({', '.join(asleep)}); a running process or the persistence daemon initialises them",
            may_change=True,
        )
    return UnplacedDevice(
        f"{what} is not among the {len(gpus)} GPUs of {root.nvidia_folder}",
        may_change=False,
    )


def _place_mig(root: HostRoot, uuid: str, nvml: AddressOfUuid | None) -> PlacedDevice | UnplacedDevice:
    address = None if nvml is None else nvml(uuid)
    if address is not None:
        return PlacedDevice(normalise_address(address), "NVML")
    gpus = read_nvidia_gpus(root)
    if len(gpus) == 1:
        return PlacedDevice(gpus[0].address, f"{gpus[0].path} (the only GPU of the host)")
    if not gpus:
        return _missing_nvidia_gpu(root, uuid, gpus)
    return UnplacedDevice(
        f"{uuid} is an instance of one of {len(gpus)} GPUs; only NVML tells which one, and NVML "
        + ("is not asked (--nvml-library)" if nvml is None else "does not know it"),
        may_change=nvml is not None,
    )


def _place_partition(root: HostRoot, name: str) -> PlacedDevice | UnplacedDevice:
    """From the partition's platform device to its render node, to the KFD node that has its PCI location."""
    folder = root.sys / "devices" / "platform" / name / "drm"
    renders = [match[1] for entry in names_in(folder) if (match := _RENDER_NODE.fullmatch(entry))]
    if not renders:
        return UnplacedDevice(f"{name} cannot be placed: {folder} has no render node", may_change=True)
    nodes = root.sys / "class" / "kfd" / "kfd" / "topology" / "nodes"
    for node in names_in(nodes):
        path = nodes / node / "properties"
        properties = dict(_PROPERTY.findall(read_text(path) or ""))
        if properties.get("drm_render_minor") == renders[0]:
            address = _kfd_address(properties)
            if address is not None:
                return PlacedDevice(address, str(path))
    return UnplacedDevice(
        f"{name} cannot be placed: no node of {nodes} has drm_render_minor {renders[0]} and a location",
        may_change=True,
    )


def _kfd_address(properties: dict[str, str]) -> str | None:
    location, domain = (int(properties.get(name, "0")) for name in ("location_id", "domain"))
    if not location & 0xFFFF:
        return None
    bus, device, function = location >> 8 & 0xFF, location >> 3 & 0x1F, location & 0x7
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}"


def place_drm_node(root: HostRoot, name: str) -> PlacedDevice | UnplacedDevice:
    """Where the device behind a node of /dev/dri is, such as `card0` or `renderD128`."""
    path = root.sys / "class" / "drm" / name / "device" / "uevent"
    for line in (read_text(path) or "").splitlines():
        key, _, value = line.partition("=")
        if key == "PCI_SLOT_NAME" and _PCI_ADDRESS.fullmatch(value.strip()):
            return PlacedDevice(normalise_address(value.strip()), str(path))
    return UnplacedDevice(f"{name} cannot be placed: {path} names no PCI_SLOT_NAME", may_change=True)
