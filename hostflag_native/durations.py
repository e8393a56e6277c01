"""Durations as callers give them, as the whole nanoseconds that the C functions take."""

import math
from typing import Final

INT64_MAX: Final = (1 << 63) - 1


def as_ns(value: float, units_per_second: int) -> int:
    """The duration in ns, within what an int64 holds: an infinite or huge one is the largest, a negative one -1.

    Raises:
        ValueError: not a number.
    """
    ns = value * (1_000_000_000 // units_per_second)
    if 0 <= ns < INT64_MAX:
        return int(ns)
    if math.isnan(value):
        raise ValueError("a duration is NaN, expected a number of seconds, milliseconds or microseconds")
    return -1 if value < 0 else INT64_MAX
