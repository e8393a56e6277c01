"""Durations as callers give them, as the whole nanoseconds that the C functions take."""

import math
from typing import Final

INT64_MAX: Final = (1 << 63) - 1


def as_ns(value: float, units_per_second: int) -> int:
    """The duration in ns, within what an int64 holds: an infinite or huge one is the largest, a negative one -1.

    Raises:
        ValueError: not a number.
    """
    if math.isnan(value):
        raise ValueError("a duration is NaN, expected a number of seconds, milliseconds or microseconds")
    if value < 0:
        return -1
    ns = value * (1_000_000_000 // units_per_second)
    return INT64_MAX if ns >= INT64_MAX else int(ns)
