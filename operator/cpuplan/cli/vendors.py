"""Who makes PCI functions of a GPU's class, and which of them no worker runs on."""

from __future__ import annotations

# Vendors of PCI functions in GPU classes, by their id in the PCI id registry (pci-ids.ucw.cz).
VENDORS = {
    "0x1002": "AMD",
    "0x10de": "NVIDIA",
    "0x8086": "Intel",
    "0x1a03": "ASPEED",
    "0x102b": "Matrox",
    "0x1d0f": "Amazon",
    "0x1ae0": "Google",
    "0x15ad": "VMware",
    "0x1414": "Microsoft",
    "0x1234": "QEMU",
    "0x1b36": "Red Hat",
    "0x1af4": "Red Hat",
}

DISPLAY_VENDORS = frozenset({"0x1a03", "0x102b", "0x15ad", "0x1414", "0x1234", "0x1b36", "0x1af4"})
"""Vendors whose display functions are those of a board's controller or a virtual screen: no worker runs there."""


def vendor_name(vendor: str) -> str:
    """The vendor's name for its sysfs id, the id itself where it is not known here."""
    return VENDORS.get(vendor, vendor)
