"""The operator's work: pods in, ConfigMap, Events and metrics out. Knows nothing of kopf.

1. List all planned pods; only then is there anything to write (a half-known cluster would lose entries).
2. Take in what the watch tells.
3. Write what differs, at most once in `write_interval_seconds`.
4. Every `resync_seconds` list again and compare: a watch can lose deletions.

Pods are taken in on the event loop; whatever talks to the API server runs in one worker thread.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from ..kube.annotations import MANAGED_SELECTOR
from ..kube.backoff import Backoff
from ..kube.client import KubeClient
from ..kube.errors import KubeError
from ..kube.paths import pods_path
from .book import PodBook
from .metrics import OperatorMetrics
from .observed import ObservedPod, observed_pod
from .reconciler import Reconciler

LOG = logging.getLogger(__name__)


class LeadershipLostError(Exception):
    """Another process may lead by now; this one must write nothing more."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How often things happen, in seconds.

    Attributes:
        write_interval_seconds: shortest time between two passes.
        tick_seconds: longest time between two passes; only time makes a plan overdue.
        resync_seconds: between full listings.
    """

    write_interval_seconds: float = 2.0
    tick_seconds: float = 10.0
    resync_seconds: float = 600.0


class Operation:
    """The work of the leader.

    Args:
        is_leading: asked before every pass.
        backoff: waits after failures; 1 to 30 s by default.
        clock: monotonic seconds.
        wall: seconds since the epoch.
    """

    def __init__(
        self,
        client: KubeClient,
        reconciler: Reconciler,
        metrics: OperatorMetrics,
        *,
        rhythm: Rhythm,
        is_leading: Callable[[], bool],
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._reconciler = reconciler
        self._metrics = metrics
        self._rhythm = rhythm
        self._is_leading = is_leading
        self._clock = clock
        self._wall = wall
        self._book = PodBook()
        self._changed = asyncio.Event()
        self._backoff = backoff or Backoff(2.0, 30.0)
        self._beat_at = clock()
        self._is_ready = False

    @property
    def is_ready(self) -> bool:
        """Whether everything was listed and written once."""
        return self._is_ready

    def silent_seconds(self) -> float:
        """Since when the work has made no step; large when it hangs."""
        return self._clock() - self._beat_at

    def pod_seen(self, pod: Mapping[str, Any], *, kind: str) -> None:
        """Takes in a pod that was listed, created or changed."""
        self._metrics.count_watch_event(kind)
        parsed = self._parsed(pod)
        if parsed is not None and self._book.put(parsed):
            self._changed.set()

    def pod_gone(self, pod: Mapping[str, Any]) -> None:
        """Takes in that a pod was deleted or is no longer planned."""
        self._metrics.count_watch_event("DELETED")
        if self._book.remove(str(pod["metadata"].get("uid", ""))):
            self._changed.set()

    async def run(self) -> None:
        """Works until it is cancelled.

        Raises:
            LeadershipLostError: at the first pass after the Lease ended.
        """
        await self._list_at_last()
        await asyncio.to_thread(self._reconciler.adopt, self._book.pods(), self._wall())
        listed_at = self._clock()
        while True:
            started = self._clock()
            self._changed.clear()
            is_written = await self._succeeds(self._pass)
            self._is_ready = self._is_ready or is_written
            # A pass that fails again and again must not keep back what repairs the book.
            if self._clock() - listed_at >= self._rhythm.resync_seconds:
                await self._list_at_last()
                listed_at = self._clock()
            elif is_written:
                await self._pause(started, listed_at + self._rhythm.resync_seconds)

    async def _list_at_last(self) -> None:
        """Lists, as often as it takes."""
        while not await self._succeeds(self._listing):
            pass

    async def _succeeds(self, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Whether the API server let `work` be done; waits after a failure, longer each time.

        Raises:
            LeadershipLostError: the Lease ended; nothing was done.
        """
        self._beat_at = self._clock()
        if not self._is_leading():
            raise LeadershipLostError("the Lease is no longer held; nothing more may be written")
        try:
            await work()
        except KubeError as error:
            self._metrics.count_failure()
            wait_seconds = self._backoff.next_seconds()
            LOG.warning("will be tried again in_seconds=%.1f error=%r", wait_seconds, str(error))
            await asyncio.sleep(wait_seconds)
            return False
        self._backoff.reset()
        return True

    async def _pause(self, pass_started: float, listing_due: float) -> None:
        """Waits for a change, at most until the next tick or listing; then until the next write is allowed."""
        try:
            # Not wait_for: its inner task would make kopf wait for it at the end.
            async with asyncio.timeout(min(self._rhythm.tick_seconds, listing_due - self._clock())):
                await self._changed.wait()
        except TimeoutError:
            return
        await asyncio.sleep(max(0.0, pass_started + self._rhythm.write_interval_seconds - self._clock()))

    async def _pass(self) -> None:
        started = self._clock()
        if await asyncio.to_thread(self._reconciler.reconcile, self._book.pods(), self._wall()):
            self._changed.set()
        self._metrics.set_pass(self._wall(), self._clock() - started)

    async def _listing(self) -> None:
        self._book.begin_listing()
        try:
            listed = await asyncio.to_thread(self._list)
            missed_count = self._book.end_listing(listed)
        except BaseException:
            self._book.abandon_listing()
            raise
        self._metrics.count_listing(missed_count if self._is_ready else 0)
        LOG.info("pods listed count=%s missed_changes=%s", len(listed), missed_count if self._is_ready else 0)

    def _list(self) -> list[ObservedPod]:
        pods: list[ObservedPod] = []
        for listed in self._client.each_object(pods_path(), label_selector=MANAGED_SELECTOR):
            parsed = self._parsed(listed)
            pods.extend(() if parsed is None else (parsed,))
            self._beat_at = self._clock()
        self._reconciler.refresh()
        return pods

    def _parsed(self, pod: Mapping[str, Any]) -> ObservedPod | None:
        try:
            return observed_pod(pod)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            metadata = pod.get("metadata") or {}
            self._metrics.count_unreadable()
            LOG.warning(
                "pod ignored: it cannot be read pod=%s/%s error=%r",
                metadata.get("namespace"),
                metadata.get("name"),
                error,
            )
            return None
