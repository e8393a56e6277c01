"""The stable reason codes of plans and errors, one word per thing."""

from __future__ import annotations

from typing import Final

# A deployment on its own (planning/deployment.py).
OFF: Final = "off"
PINNED: Final = "pinned"
UNSUPPORTED: Final = "unsupported"
NOTHING_TO_PLACE: Final = "nothing-to-place"
TOO_FEW_CORES: Final = "too-few-cores"
NO_CORE_LEFT: Final = "no-core-left"
WOULD_PIN_ALL: Final = "would-pin-all"

# Errors of the setting.
INVALID_SETTING: Final = "invalid-setting"
OUTSIDE_MASK: Final = "outside-mask"
TOO_FEW_CORES_ABOVE: Final = "too-few-cores-above"

# What only a node can say (planning/ledger.py, agent).
CONFLICT: Final = "conflict"
DEVICE_UNKNOWN: Final = "device-unknown"
NO_DEVICE: Final = "no-device"
CPU_GONE: Final = "cpu-gone"
WAITING_FOR_DEVICES: Final = "waiting-for-devices"
OVER_SHARE: Final = "over-share"

OF_PLANS: Final = frozenset(
    {
        OFF,
        PINNED,
        UNSUPPORTED,
        NOTHING_TO_PLACE,
        TOO_FEW_CORES,
        NO_CORE_LEFT,
        WOULD_PIN_ALL,
        INVALID_SETTING,
        OUTSIDE_MASK,
        TOO_FEW_CORES_ABOVE,
        CONFLICT,
        DEVICE_UNKNOWN,
        NO_DEVICE,
        CPU_GONE,
        WAITING_FOR_DEVICES,
        OVER_SHARE,
    }
)
"""Every reason that a published plan can have."""

# A text or file that is no plan.
INVALID_PLAN: Final = "invalid-plan"
