"""The pods of one node, kept up to date: list, watch, re-list and diff.

1. List the node's pods from the API server's watch cache and compare with what is known: what is new, changed
   or gone since becomes a change, also when it happened in a gap. No list leads back in time: another API
   server may lag behind, and what is decided on an old state is decided wrongly.
2. Watch from the list's version, with bookmarks, for a random time of 300 to 600 seconds.
3. The stream ends or falls silent: watch again from the last version seen.
4. The version is too old (410), or anything else: back off with jitter, then list again (1). A server whose cache
   lags may call the version of its own list too old, and after its restart all nodes get their 410 at once.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from .answers import JsonObject, WatchStream
from .backoff import Backoff
from .client import KubeClient
from .errors import ApiUnreachableError, GoneError, KubeError, UnexpectedAnswerError
from .paths import pods_path
from .pods import Pod, parse_pod
from .versions import is_older

SERVER_TIMEOUT_SECONDS = (300, 600)
"""Watches end after a random time in this range, so that those of many nodes never end together."""

READ_TIMEOUT_SECONDS = 150.0
"""Longest silence: the API server sends a bookmark about every 60 s, so this much means a dead connection."""

ANY_VERSION = "0"
"""Asks for what the watch cache has."""

SHORTEST_WATCH_SECONDS = 1.0
"""A stream that ends sooner without an event counts as a failure: no loop may spin on it."""

_log = logging.getLogger(__name__)


class ChangeKind(Enum):
    """What happened to a pod."""

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class PodChange:
    """One pod came, changed or went; `pod` is its last known state."""

    kind: ChangeKind
    pod: Pod


class PodWatch:
    """Keeps the pods of one node; tells every change to `on_change` from the thread that calls `run`.

    Args:
        stop: set it (or call `close`) to end `run`; its `wait` is the only sleep.
        on_error: told about each failure before the wait that follows it.
        start_jitter_seconds: `run` begins after a random part of this.
    """

    def __init__(
        self,
        client: KubeClient,
        node_name: str,
        *,
        on_change: Callable[[PodChange], None],
        on_error: Callable[[KubeError], None] = lambda error: None,
        stop: threading.Event | None = None,
        start_jitter_seconds: float = 0.0,
        source: random.Random | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._selector = f"spec.nodeName={node_name}"
        self._on_change = on_change
        self._on_error = on_error
        self._stop = stop or threading.Event()
        self._start_jitter_seconds = start_jitter_seconds
        self._random = source or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._monotonic = monotonic
        self._backoff = Backoff(0.5, 30.0, source=self._random)
        self._lock = threading.Lock()
        self._pods: dict[str, Pod] = {}
        self._learned: dict[str, str] = {}
        self._is_synced = False
        self._stream: WatchStream | None = None
        self._resource_version = self._asks_for = ""

    def pods(self) -> tuple[Pod, ...]:
        """The node's pods as last seen."""
        with self._lock:
            return tuple(self._pods.values())

    def learn(self, content: JsonObject) -> None:
        """Takes the answer to an own write as the pod's state, until the watch shows it or something newer.

        Without it a decision made before the watch has caught up would see, and write, the same again.
        """
        pod = _parsed(content)
        if pod is None:
            return
        with self._lock:
            known = self._pods.get(pod.uid)
            # The watch may have been faster than the answer, and show what somebody else wrote after us.
            if known is not None and not is_older(pod.resource_version, known.resource_version):
                self._pods[pod.uid] = pod
                self._learned[pod.uid] = pod.resource_version

    @property
    def is_synced(self) -> bool:
        """The pods have been listed at least once."""
        return self._is_synced

    def close(self) -> None:
        """Ends `run`, also while it waits for the API server."""
        self._stop.set()
        with self._lock:
            stream = self._stream
        if stream is not None:
            stream.close()

    def run(self) -> None:
        """Lists and watches until stopped; never raises because of the API server."""
        self._stop.wait(self._random.random() * self._start_jitter_seconds)
        while not self._stop.is_set():
            try:
                self._list()
                while not self._stop.is_set():
                    self._watch()
            except GoneError:
                delay = self._backoff.next_seconds()
                _log.info("the watch is too old, listing again selector=%s in_seconds=%.1f", self._selector, delay)
                self._stop.wait(delay)
            except KubeError as error:
                self._failed(error)
            except Exception as error:  # noqa: BLE001 - a watch that ended for good would leave the node unplanned
                _log.exception("the watch met something unexpected")
                self._failed(UnexpectedAnswerError(f"the watch failed: {type(error).__name__}: {error}"))

    def _failed(self, error: KubeError) -> None:
        """Tells the error and waits, longer each time."""
        self._on_error(error)
        delay = self._backoff.next_seconds()
        _log.warning("pods cannot be watched error=%r retry_seconds=%.1f", str(error), delay)
        self._stop.wait(delay)

    def _list(self) -> None:
        """Lists the pods as they were at the last version seen, or later.

        A server that cannot answer that (it lags far behind, or its storage was restored from a backup) is asked
        for what it has the next time.
        """
        wanted = self._asks_for or ANY_VERSION
        self._asks_for = ANY_VERSION
        listed = self._client.list_objects(pods_path(), field_selector=self._selector, not_older_than=wanted)
        found = {pod.uid: pod for pod in map(_parsed, listed.items) if pod is not None}
        with self._lock:
            known = self._pods
            # The planner may have written while the list was on its way.
            learned = {
                uid: version
                for uid, version in self._learned.items()
                if uid in found and is_older(found[uid].resource_version, version)
            }
            self._pods = found = {**found, **{uid: known[uid] for uid in learned}}
            self._learned = learned
        changes = [PodChange(ChangeKind.DELETED, pod) for uid, pod in known.items() if uid not in found]
        for uid, pod in found.items():
            if uid not in known:
                changes.append(PodChange(ChangeKind.ADDED, pod))
            elif known[uid].resource_version != pod.resource_version:
                changes.append(PodChange(ChangeKind.MODIFIED, pod))
        self._seen(listed.resource_version)
        self._is_synced = True
        for change in changes:
            self._on_change(change)

    def _seen(self, resource_version: str) -> None:
        """Remembers where the next watch continues, and how old the next list may be."""
        self._resource_version = self._asks_for = resource_version

    def _watch(self) -> None:
        """One watch from the last version on; returns when a new one may follow at once."""
        began = self._monotonic()
        before = self._resource_version
        try:
            stream = self._client.watch(
                pods_path(),
                resource_version=self._resource_version,
                field_selector=self._selector,
                server_timeout_seconds=self._random.randint(*SERVER_TIMEOUT_SECONDS),
                read_timeout_seconds=READ_TIMEOUT_SECONDS,
            )
            with self._lock:
                self._stream = stream
            if self._stop.is_set():
                stream.close()
            for event in stream:
                self._backoff.reset()
                self._apply(event.kind, event.object)
                self._seen(event.resource_version or self._resource_version)
        except ApiUnreachableError as error:
            # The version seen last is still good: continue from there instead of listing again.
            if self._resource_version == before:
                raise
            _log.info("the watch broke off, continuing error=%r", str(error))
            return
        finally:
            with self._lock:
                self._stream = None
        ended_early = self._monotonic() - began < SHORTEST_WATCH_SECONDS
        if ended_early and self._resource_version == before and not self._stop.is_set():
            self._stop.wait(self._backoff.next_seconds())

    def _apply(self, kind: str, content: JsonObject) -> None:
        if kind not in ("ADDED", "MODIFIED", "DELETED"):
            return
        pod = _parsed(content)
        if pod is None:
            return
        with self._lock:
            known = self._pods.get(pod.uid)
            if kind == "DELETED":
                self._pods.pop(pod.uid, None)
                self._learned.pop(pod.uid, None)
                change = PodChange(ChangeKind.DELETED, pod)
            elif is_older(pod.resource_version, self._learned.get(pod.uid)):
                return
            else:
                self._pods[pod.uid] = pod
                self._learned.pop(pod.uid, None)
                change = PodChange(ChangeKind.ADDED if known is None else ChangeKind.MODIFIED, pod)
        self._on_change(change)


def _parsed(content: JsonObject) -> Pod | None:
    try:
        return parse_pod(content)
    except UnexpectedAnswerError as error:
        _log.warning("a pod is left out error=%r", str(error))
        return None
