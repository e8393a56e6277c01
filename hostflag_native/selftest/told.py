"""What a test tells whoever listens, kind by kind, as it goes."""

from collections.abc import Callable
from typing import Any, Final

RUNNING: Final = "running"
"""A check begins: its part and its name."""

CHECK: Final = "check"
"""A check was made: the Check."""

DEVICE: Final = "device"
"""A device was looked at: what it is."""

ENDED: Final = "ended"
"""All checks were made."""

Tell = Callable[[str, Any], None]
"""Hears of one thing: its kind, and the thing."""
