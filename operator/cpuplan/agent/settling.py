"""Hysteresis for masks: a pool that shrinks and grows with its neighbours does not move pins each time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ..model.request import DeploymentRequest

SETTLE_SECONDS = 10.0
"""How long a changed mask must stay as it is before pins follow it: longer than a burst of pod starts, short
against the life of a server."""

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Seen:
    mask: frozenset[int]
    since: float


class MaskSettling:
    """Holds back changes of masks that leave all pins valid until they have lasted.

    1. No plan with pins stands: the mask counts at once.
    2. A pinned CPU has left the mask: it counts at once.
    3. Else the plan's own mask counts until the new one has been seen unchanged for `settle_seconds`.
    """

    def __init__(
        self, settle_seconds: float = SETTLE_SECONDS, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._settle_seconds = settle_seconds
        self._monotonic = monotonic
        self._seen: dict[Key, _Seen] = {}

    def settle(self, requests: Iterable[DeploymentRequest]) -> tuple[DeploymentRequest, ...]:
        """The requests of the whole node, each with the mask that counts now."""
        before, self._seen = self._seen, {}
        return tuple(self._settled(request, before.get(request.key)) for request in requests)

    @property
    def due_seconds(self) -> float | None:
        """After how long the first held-back mask counts; None when none is held back."""
        if not self._seen:
            return None
        first = min(seen.since for seen in self._seen.values())
        return max(0.0, first + self._settle_seconds - self._monotonic())

    def _settled(self, request: DeploymentRequest, seen: _Seen | None) -> DeploymentRequest:
        previous = request.previous
        if previous is None or previous.mask == request.mask or not previous.pinned:
            return request
        if not previous.pinned <= request.mask:
            return request
        if seen is None or seen.mask != request.mask:
            seen = _Seen(request.mask, self._monotonic())
        if self._monotonic() - seen.since >= self._settle_seconds:
            return request
        self._seen[request.key] = seen
        return replace(request, mask=previous.mask, withheld=previous.withheld)
