"""When the node is planned again: at once, soon, or at the next slow look. Pure: the time is passed in."""

from __future__ import annotations

import math
import random

SHORTEST_GAP_SECONDS = 0.05
"""Between two plans of the node: a burst of events becomes one, and the kubelet (100 questions/s) stays unbothered."""

NEIGHBOUR_SECONDS = 1.0
"""After a change of a pod that is not planned: it may change cpusets of others, and nobody waits for that."""

FOLLOW_UP_SECONDS = 11.0
"""When a pod with exclusive CPUs comes or goes, the kubelet rewrites the cpusets of all others at its next reconcile,
10 s later by default (cpuManagerReconcilePeriod), and no event tells."""

FIRST_POLL_SECONDS = 0.05
LONGEST_POLL_SECONDS = 10.0
"""The kubelet shows a pod before its devices are allocated; asked again with doubling pauses."""

RESYNC_SECONDS = 30.0
"""Slow look at what sends no event: resized quotas, rewritten cpusets, CPUs that come and go."""


class Schedule:
    """The next time to plan; starts with now."""

    def __init__(
        self, now: float, *, resync_seconds: float = RESYNC_SECONDS, source: random.Random | None = None
    ) -> None:
        self._resync_seconds = resync_seconds
        self._random = source or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._due = now
        self._follow_up = math.inf
        self._last = now - SHORTEST_GAP_SECONDS
        self._awaited: frozenset[str] = frozenset()
        self._poll_seconds = FIRST_POLL_SECONDS

    @property
    def due(self) -> float:
        """When to plan next."""
        return max(min(self._due, self._follow_up), self._last + SHORTEST_GAP_SECONDS)

    def pod_changed(self, now: float, *, is_planned: bool) -> None:
        """A pod came, changed or went."""
        self._due = min(self._due, now if is_planned else now + NEIGHBOUR_SECONDS)
        self._follow_up = min(self._follow_up, now + FOLLOW_UP_SECONDS)

    def turn_begins(self) -> None:
        """The state of the node is looked at from here on: what changes now is for the next turn."""
        self._due = math.inf

    def turn_ends(self, now: float, *, awaited: frozenset[str], within_seconds: float | None = None) -> None:
        """The node was planned as it was when the turn began.

        Args:
            awaited: what is asked for again soon (pods whose devices are not all shown); polled from
                FIRST_POLL_SECONDS on, anew whenever something joins.
            within_seconds: something else is due by then.
        """
        self._last = now
        if self._follow_up <= now:
            self._follow_up = math.inf
        self._due = min(self._due, now + self._resync_seconds * (0.8 + 0.4 * self._random.random()))
        if awaited:
            if not awaited <= self._awaited:
                self._poll_seconds = FIRST_POLL_SECONDS
            self._due = min(self._due, now + self._poll_seconds)
            self._poll_seconds = min(LONGEST_POLL_SECONDS, self._poll_seconds * 2)
        self._awaited = awaited
        if within_seconds is not None:
            self._due = min(self._due, now + within_seconds)
