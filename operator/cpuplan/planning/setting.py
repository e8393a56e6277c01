"""The knob `step_thread_core`, parsed once into a value that cannot be wrong."""

from __future__ import annotations

import re
from typing import Final

from ..model import reasons
from ..model.errors import CpuPlanError

OFF: Final = "off"
AUTO: Final = "auto"

Setting = int | str
"""`off`, `auto` or a CPU number; numbers may be negative here, which is then outside every mask."""

# Far beyond any CPU, and so outside every mask, but short enough to be repeated in an error.
_DECIMAL = re.compile(r"-?[0-9]{1,60}", re.ASCII)

_MOST_QUOTED = 62
"""Characters of a value that an error repeats: the longest number and its quotes."""


def is_off(value: object) -> bool:
    """Whether the value is the text `off`; a value that compares in a way of its own (an array) is not."""
    return isinstance(value, str) and value == OFF


def is_auto(value: object) -> bool:
    """Whether the value is the text `auto`."""
    return isinstance(value, str) and value == AUTO


def parse_setting(value: object) -> Setting:
    """The setting that a user's value means.

    Raises:
        CpuPlanError: `invalid-setting`, naming the value and the three forms.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        if value in (OFF, AUTO):
            return value
        if _DECIMAL.fullmatch(value):
            return int(value)
    raise CpuPlanError(
        f"step_thread_core is {_shortened(value)}: expected off, auto or a CPU number such as 4",
        reason=reasons.INVALID_SETTING,
    )


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_QUOTED else f"{text[:_MOST_QUOTED]}…"
