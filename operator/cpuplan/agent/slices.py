"""What a DRA driver's ResourceSlices say of its devices: where each is.

Drivers name the PCI address in ways of their own beside the standard attribute: `pcieBusID` (NVIDIA up to 25.8),
`pciAddr`, of partitions `parentPciAddr` (AMD's first releases), `pciAddress` (Intel up to 0.9, dranet and the SR-IOV
driver with their own name before it). A partition's own UUID leads nowhere without NVML, its parent's does.

Source: https://kubernetes.io/docs/reference/node/dra-standard-device-attributes/; deviceinfo.go of
kubernetes-sigs/dra-driver-nvidia-gpu, docs/driver-attributes.md of ROCm/k8s-gpu-dra-driver, node_state.go of
intel/intel-resource-drivers-for-kubernetes, pkg/apis/attributes.go of dranet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..kube.answers import JsonObject
from ..model.topology import is_pci_address, normalise_address

STANDARD_ADDRESS: Final = "resource.kubernetes.io/pciBusID"

_OTHER_ADDRESSES = (
    "pciBusID",
    "pciBusId",
    "pcieBusID",
    "pciAddress",
    "pciAddr",
    "parentPciAddress",
    "parentPciAddr",
)
_UUIDS = ("parentUUID", "parentUuid", "uuid", "UUID")

DeviceKey = tuple[str, str, str]
"""Driver, pool and name: what tells devices apart."""

Attributes = Mapping[str, str]
"""A device's text attributes; those of the driver's own domain without it."""


@dataclass(frozen=True, slots=True)
class NamedAddress:
    """A PCI address in sysfs form, and the attribute that names it."""

    address: str
    attribute: str


def attributes_in(slices: Any) -> dict[DeviceKey, Attributes]:
    """The text attributes of each device of the newest generation of its pool."""
    newest: dict[tuple[str, str], int] = {}
    found: dict[DeviceKey, Attributes] = {}
    for entry in sorted(entries_of(slices), key=_generation):
        driver = str(value_at(entry, "spec", "driver"))
        pool = (driver, str(value_at(entry, "spec", "pool", "name")))
        if newest.get(pool, -1) < _generation(entry):
            newest[pool] = _generation(entry)
            found = {key: attributes for key, attributes in found.items() if key[:2] != pool}
        for device in entries_of(value_at(entry, "spec", "devices")):
            # v1beta1 wraps the device's content in `basic`.
            content = value_at(device, "basic", "attributes") or value_at(device, "attributes")
            attributes = content if isinstance(content, dict) else {}
            found[(*pool, str(device.get("name", "")))] = {
                str(name).removeprefix(f"{driver}/"): text
                for name, value in attributes.items()
                if isinstance(value, dict) and isinstance(text := value.get("string"), str)
            }
    return found


def address_in(attributes: Attributes) -> NamedAddress | None:
    """Where the device is, None where no attribute says it."""
    for name in (STANDARD_ADDRESS, *_OTHER_ADDRESSES):
        text = attributes.get(name)
        if text is not None and is_pci_address(text):
            return NamedAddress(normalise_address(text), name)
    return None


def uuid_in(attributes: Attributes) -> str | None:
    """The UUID of the device's parent, else its own; None where no attribute says it."""
    return next((attributes[name] for name in _UUIDS if name in attributes), None)


def value_at(content: Any, *keys: str) -> Any:
    """What stands under the keys, one below the other; None where there is nothing."""
    for key in keys:
        content = content.get(key) if isinstance(content, dict) else None
    return content


def entries_of(content: Any) -> Sequence[JsonObject]:
    """The objects of a list; none where it is no list."""
    return [entry for entry in content if isinstance(entry, dict)] if isinstance(content, list) else []


def _generation(entry: JsonObject) -> int:
    generation = value_at(entry, "spec", "pool", "generation")
    return generation if isinstance(generation, int) else 0
