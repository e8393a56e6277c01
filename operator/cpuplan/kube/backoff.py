"""Waiting times after failures: longer each time, and different for each client."""

import random


class Backoff:
    """Jittered exponential waiting times: each a random part, at least half, of a bound that doubles.

    Args:
        first_seconds: the first bound.
        longest_seconds: the bound never grows beyond this.
    """

    def __init__(self, first_seconds: float, longest_seconds: float, *, source: random.Random | None = None) -> None:
        self._first = first_seconds
        self._longest = longest_seconds
        self._random = source or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._bound = first_seconds

    def next_seconds(self) -> float:
        """The next waiting time."""
        bound = self._bound
        self._bound = min(self._longest, self._bound * 2)
        return bound * (0.5 + self._random.random() / 2)

    def reset(self) -> None:
        """The next waiting time is the shortest again: something worked."""
        self._bound = self._first
