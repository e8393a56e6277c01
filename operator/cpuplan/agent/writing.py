"""Plans onto pods: one merge-patch per change, none when nothing changes, and patience with refusals."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..kube.annotations import MANAGED_LABEL, MANAGED_VALUE, changed_annotations
from ..kube.answers import JsonObject
from ..kube.backoff import Backoff
from ..kube.client import KubeClient
from ..kube.errors import (
    ApiStatusError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    KubeError,
    NotFoundError,
    UnauthorizedError,
)
from ..kube.paths import pod_path
from ..kube.pods import Pod
from .metrics import FAILED, OUTDATED, REFUSED, WRITTEN, AgentMetrics

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0

_log = logging.getLogger(__name__)


def patch_of(pod: Pod, wanted: Mapping[str, str] | None) -> JsonObject | None:
    """The merge-patch that gives the pod these annotations of ours (None: no trace of us); None when it has them.

    The label goes with them. The UID makes the API server refuse the patch for a namesake.
    """
    changes = changed_annotations(pod.annotations, wanted or {})
    label = MANAGED_VALUE if wanted is not None else None
    if not changes and pod.managed_label == label:
        return None
    metadata: JsonObject = {"uid": pod.uid}
    if changes:
        metadata["annotations"] = changes
    if pod.managed_label != label:
        metadata["labels"] = {MANAGED_LABEL: label}
    return {"metadata": metadata}


@dataclass(slots=True)
class _Held:
    """A pod whose last patch did not succeed, and why: not tried again before `due`."""

    due: float
    backoff: Backoff
    why: str = ""


class PodWriter:
    """Patches pods of one node.

    Args:
        learn: told the API server's answer to each patch.
    """

    def __init__(
        self,
        client: KubeClient,
        metrics: AgentMetrics,
        *,
        learn: Callable[[JsonObject], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._metrics = metrics
        self._learn = learn
        self._monotonic = monotonic
        self._held: dict[str, _Held] = {}
        self._api_backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS / 2)
        self._api_due = monotonic()

    def write(self, pod: Pod, patch: JsonObject) -> bool:
        """Patches the pod; True when the API server took it.

        After a refusal the pod is left alone for a while; after no answer all pods are, since each further try
        would wait as long.
        """
        held = self._held.get(pod.uid)
        due = self._api_due if held is None else max(self._api_due, held.due)
        if due > self._monotonic():
            return False
        try:
            answer = self._client.merge_patch(pod_path(pod.namespace, pod.name), patch)
        except KubeError as error:
            self._hold(pod, error)
            return False
        self._held.pop(pod.uid, None)
        self._api_backoff.reset()
        self._metrics.patched(WRITTEN)
        self._learn(answer)
        return True

    def keep_only(self, uids: frozenset[str]) -> None:
        """Forgets the failures of pods that are gone."""
        self._held = {uid: held for uid, held in self._held.items() if uid in uids}

    def troubles(self) -> dict[str, str]:
        """By UID, why the last patch of a pod did not succeed."""
        return {uid: held.why for uid, held in self._held.items()}

    @property
    def due_seconds(self) -> float | None:
        """After how long the first held pod may be tried again; None when none is held."""
        if not self._held:
            return None
        first = max(self._api_due, min(held.due for held in self._held.values()))
        return max(0.0, first - self._monotonic())

    def _hold(self, pod: Pod, error: KubeError) -> None:
        held = self._held.setdefault(pod.uid, _Held(0.0, Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)))
        delay = held.backoff.next_seconds()
        held.due = self._monotonic() + delay
        held.why = str(error)
        result = _result(error)
        if result == FAILED:
            self._api_due = self._monotonic() + self._api_backoff.next_seconds()
        self._metrics.patched(result)
        level = logging.INFO if result == OUTDATED else logging.WARNING
        reason = error.reason if isinstance(error, ApiStatusError) else ""
        _log.log(
            level,
            "the plan could not be written pod=%s result=%s reason=%s retry_seconds=%.1f error=%r",
            pod.key,
            result,
            reason,
            delay,
            str(error),
        )


def _result(error: KubeError) -> str:
    if isinstance(error, (NotFoundError, ConflictError)):
        return OUTDATED
    if isinstance(error, (ForbiddenError, InvalidError, UnauthorizedError)):
        return REFUSED
    return FAILED
