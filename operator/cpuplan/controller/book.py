"""All observed pods, and what changed since the last look: the operator's only memory of the cluster.

Rebuilt from nothing at start. The watch and the full listing both write here, from the event loop's thread.
"""

from collections.abc import Iterable

from ..kube.versions import is_older
from .observed import ObservedPod


class PodBook:
    """Pods by UID.

    A watch can lose deletions (a re-list after 410 tells none), so every so often a full listing is laid over
    the book. While one is under way the watch goes on; what it tells meanwhile stays.

    The watch may lag behind a listing (at the start it still tells what it had listed itself, seconds ago): of two
    states of a pod the newer one counts.
    """

    def __init__(self) -> None:
        self._pods: dict[str, ObservedPod] = {}
        self._touched: set[str] | None = None

    def put(self, pod: ObservedPod) -> bool:
        """Notes a pod that was created or changed; whether it differs from what was known."""
        if self._touched is not None:
            self._touched.add(pod.uid)
        known = self._pods.get(pod.uid)
        if known is not None and is_older(pod.resource_version, known.resource_version):
            return False
        is_new = known != pod
        self._pods[pod.uid] = pod
        return is_new

    def remove(self, uid: str) -> bool:
        """Notes that a pod is gone, or no longer planned; whether it was known."""
        if self._touched is not None:
            self._touched.add(uid)
        return self._pods.pop(uid, None) is not None

    def begin_listing(self) -> None:
        """From now on what the watch tells stays, unless the listing that starts is newer."""
        self._touched = set()

    def end_listing(self, listed: Iterable[ObservedPod]) -> int:
        """Lays a complete listing over the book.

        Returns:
            How many pods were different from what the watch had told: 0 as long as it loses nothing.
        """
        touched = self._touched or set()
        self._touched = None
        found = {pod.uid: pod for pod in listed if pod.uid not in touched or self._is_outdated_by(pod)}
        gone = [uid for uid in self._pods if uid not in found and uid not in touched]
        for uid in gone:
            del self._pods[uid]
        differing = [pod for uid, pod in found.items() if self._pods.get(uid) != pod]
        self._pods.update(found)
        return len(gone) + len(differing)

    def _is_outdated_by(self, pod: ObservedPod) -> bool:
        known = self._pods.get(pod.uid)
        return known is not None and is_older(known.resource_version, pod.resource_version)

    def abandon_listing(self) -> None:
        """The listing failed; the book stays as it is."""
        self._touched = None

    def pods(self) -> tuple[ObservedPod, ...]:
        """All pods, in no particular order."""
        return tuple(self._pods.values())
