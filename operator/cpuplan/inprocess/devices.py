"""PCI addresses of device strings such as `cuda:1`, as the GPU runtime counts devices."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence

from ..model.topology import normalise_address

Resolver = Callable[[str, int], str | None]
"""From a device type (`cuda`) and the runtime's logical index to a PCI address, None where unknown."""

_INDEX = re.compile(r"[0-9]{1,6}", re.ASCII)


def device_addresses(devices: Sequence[str], *, resolver: Resolver | None = None) -> list[str | None]:
    """One PCI address per device string; None for a CPU, a bare type, and where the platform reports none.

    The index is the runtime's logical one: CUDA_VISIBLE_DEVICES and the device order count, sysfs order
    never does. Without a resolver, the torch that the process has already imported is asked.

    Raises:
        ValueError: an index is not a number.
    """
    resolve = resolver or _ask_torch
    addresses: list[str | None] = []
    for device in devices:
        kind, separator, index = device.partition(":")
        if separator and not _INDEX.fullmatch(index):
            raise ValueError(f"device {device!r}: {index!r} is not a device index; expected a form like cuda:0")
        if not separator or kind == "cpu":
            addresses.append(None)
            continue
        address = resolve(kind, int(index))
        addresses.append(None if address is None else normalise_address(address))
    return addresses


def _ask_torch(kind: str, index: int) -> str | None:
    """The PCI address that torch reports; never imports torch, whose import an engine times itself."""
    torch = sys.modules.get("torch")
    runtime = getattr(torch, kind, None)
    try:
        properties = runtime.get_device_properties(index)  # type: ignore[union-attr]
        parts = (properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id)
    except (AttributeError, AssertionError, RuntimeError, ValueError):
        return None
    return "{:04x}:{:02x}:{:02x}.0".format(*parts)
