"""PCI addresses of device strings such as `cuda:1`, as the GPU runtime counts devices."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from ..model.topology import normalise_address

Resolver = Callable[[str, int], str | None]
"""From a device type (`cuda`) and the runtime's logical index to a PCI address, None where unknown."""

_INDEX = re.compile(r"[0-9]{1,6}", re.ASCII)


def device_addresses(devices: Iterable[str], *, resolver: Resolver | None = None) -> list[str | None]:
    """One PCI address per device string; None for a CPU, a bare type, and where the platform reports none.

    The index is the runtime's logical one: CUDA_VISIBLE_DEVICES and the device order count, sysfs order
    never does. Without a resolver, the driver is asked, in a way that leaves this process free to fork.

    Raises:
        TypeError: `devices` is one text, or a device is no text.
        ValueError: an index is not a number.
    """
    if isinstance(devices, str):
        raise TypeError(f"devices is the text {devices!r}: expected one per worker, as in [{devices!r}]")
    if resolver is None:
        from .gpuruntime import GpuRuntime  # noqa: PLC0415 - importing cpuplan would pay for subprocess and json

        resolver = GpuRuntime()
    addresses: list[str | None] = []
    for device in devices:
        if not isinstance(device, str):
            raise TypeError(f"device {device!r} is no text; expected a form like cuda:0")
        kind, separator, index = device.partition(":")
        if separator and not _INDEX.fullmatch(index):
            raise ValueError(f"device {device!r}: {index!r} is not a device index; expected a form like cuda:0")
        if not separator or kind == "cpu":
            addresses.append(None)
            continue
        address = resolver(kind, int(index))
        addresses.append(None if address is None else normalise_address(address))
    return addresses
