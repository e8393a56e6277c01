"""The workers of a deployment: one per device by PCI address, or as `cpuplan.dev/workers` says."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..kube.annotations import WORKERS
from ..model import reasons
from ..model.errors import CpuPlanError
from ..model.request import WorkerDevice

MOST_WORKERS = 64
"""As many as a node has devices at most (eight MI300X in eight parts each); more would outgrow the annotations."""

_PART = re.compile(r"-|[0-9]{1,4}", re.ASCII)


def in_address_order(devices: Sequence[WorkerDevice]) -> tuple[WorkerDevice, ...]:
    """The devices by PCI address, those without one last, then by id: the order in which workers count them."""
    return tuple(sorted(devices, key=lambda d: (d.address is None, d.address or "", d.device_id or "")))


def workers_of(setting: str | None, devices: Sequence[WorkerDevice]) -> tuple[WorkerDevice, ...]:
    """The device of each worker, in worker order.

    Args:
        setting: the annotation `cpuplan.dev/workers` (`0,0,1,-`), None without it: one worker per device.
        devices: the container's devices in address order.

    Raises:
        CpuPlanError: `invalid-setting`: a part is neither `-` nor the index of a device.
    """
    if setting is None:
        return tuple(devices)
    parts = [part.strip() for part in setting.split(",")]
    if len(parts) > MOST_WORKERS:
        raise _invalid(setting, f"it names {len(parts)} workers, at most {MOST_WORKERS} are planned")
    return tuple(_worker(part, setting, devices) for part in parts)


def _worker(part: str, setting: str, devices: Sequence[WorkerDevice]) -> WorkerDevice:
    if _PART.fullmatch(part) is None:
        raise _invalid(setting, f"{part[:20]!r} is neither a device index nor - (no device)")
    if part == "-":
        return WorkerDevice(None)
    index = int(part)
    if index >= len(devices):
        raise _invalid(setting, f"device {index} does not exist, the container has {len(devices)} (0 is the first)")
    return devices[index]


def _invalid(setting: str, what: str) -> CpuPlanError:
    return CpuPlanError(
        f"{WORKERS} is {setting[:60]!r}: {what}; expected one device index or - per worker, such as 0,0,1,-",
        reason=reasons.INVALID_SETTING,
    )
