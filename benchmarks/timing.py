"""The time of a call: the best of many, since everything else on a machine only adds to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

REPEATS = 100


def best_ms(call: Callable[[], object], repeats: int = REPEATS) -> float:
    """The shortest of `repeats` calls, in milliseconds."""
    return best_of_each_ms([call], repeats)[0]


def best_of_each_ms(calls: Sequence[Callable[[], object]], repeats: int = REPEATS) -> list[float]:
    """The shortest of `repeats` runs of each call, in milliseconds; run in turns, so that all meet the same load."""
    shortest = [float("inf")] * len(calls)
    for _ in range(repeats):
        for index, call in enumerate(calls):
            start = time.perf_counter()
            call()
            shortest[index] = min(shortest[index], time.perf_counter() - start)
    return [seconds * 1000 for seconds in shortest]


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure beside its bound (None: none is set)."""

    name: str
    value: float
    unit: str
    bound: float | None = None

    @property
    def is_met(self) -> bool:
        """Whether the figure is within its bound; one without a bound is."""
        return self.bound is None or self.value <= self.bound

    def __str__(self) -> str:
        bound = "" if self.bound is None else f"   (bound {self.bound:g} {self.unit})"
        return f"{self.name:<64}{self.value:>9.2f} {self.unit}{bound}{'' if self.is_met else '   EXCEEDED'}"
