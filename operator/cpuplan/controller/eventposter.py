"""Posts announcements as Events: each once, a standing finding again now and then, never more than a few a second."""

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from ..kube.client import KubeClient
from ..kube.errors import (
    ApiStatusError,
    ConflictError,
    ForbiddenError,
    KubeError,
    NotFoundError,
    TooManyRequestsError,
    UnauthorizedError,
)
from ..kube.paths import event_path, events_path
from .announcements import Announcement, event_object, renewed_event, repeated_event

LOG = logging.getLogger(__name__)

REPEAT_SECONDS = 1800.0
"""A standing finding is said again this often; the API server keeps Events for one hour by default."""

MOST_WRITES_PER_PASS = 100
"""Events written in one pass: the index must not wait behind thousands of them (about 5 ms each)."""

REFUSED_SECONDS = 300.0
"""An Event that the API server refused is tried again after this: quotas, webhooks and policies of one namespace
refuse what all others take."""

FAILED_SECONDS = 30.0
"""A namespace at whose Event the API server itself failed is left alone for this long, and comes last from then on
until it takes one: a webhook that is down fails for its namespaces alone."""

_BEING_TERMINATED = "being terminated"
"""Part of the API server's refusal to create anything in a namespace that is being deleted."""


@dataclass(slots=True)
class _Posted:
    written_at: float
    count: int


@dataclass(frozen=True, slots=True)
class Posting:
    """What one pass wrote: reasons of new Events, how many were repeated, not taken, and how many have to wait.

    `failure` is what the API server failed with, where that ended the pass.
    """

    reasons: tuple[str, ...]
    repeated_count: int
    refused_count: int
    waiting_count: int
    failure: KubeError | None = None


class EventPoster:
    """Remembers what was posted. Call from one thread.

    A restart forgets, and harmlessly: the same announcement has the same Event name, which the API server then
    refuses to create again.
    """

    def __init__(self, client: KubeClient, *, instance: str, most_writes_per_pass: int = MOST_WRITES_PER_PASS) -> None:
        self._client = client
        self._instance = instance
        self._most_writes = most_writes_per_pass
        self._posted: dict[str, _Posted] = {}
        self._not_before: dict[str, float] = {}
        self._namespace_not_before: dict[str, float] = {}
        self._has_waiting = False

    @property
    def has_waiting(self) -> bool:
        """Whether the last call left announcements for the next one."""
        return self._has_waiting

    def post(self, once: Iterable[Announcement], standing: Iterable[Announcement], now: float) -> Posting:
        """Writes what has not been said yet, and says standing findings again when it is time.

        Args:
            once: said once (plans).
            standing: said now and again as long as they are passed here (findings).
            now: seconds since the epoch.

        An Event that is refused keeps back no other. Where the API server itself fails, or asks to slow down, the rest
        waits for the next pass, which leaves that namespace alone.
        """
        plans, findings = list(once), list(standing)
        due = self._due(plans, findings, now)
        reasons: list[str] = []
        refusals: list[KubeError] = []
        failure: KubeError | None = None
        repeated_count = tried_count = 0
        for announcement, is_standing in due[: self._most_writes]:
            tried_count += 1
            try:
                if is_standing and self._repeat(announcement, now):
                    repeated_count += 1
                elif self._create(announcement, now):
                    reasons.append(announcement.reason)
            except KubeError as error:
                if not _is_about_the_event(error):
                    failure = error
                    self._namespace_not_before[announcement.namespace] = now + FAILED_SECONDS
                    break
                refusals.append(error)
                self._not_before[announcement.event_name] = now + REFUSED_SECONDS
            else:
                self._namespace_not_before.pop(announcement.namespace, None)
        if refusals:
            LOG.warning("events not taken, to be tried again count=%s error=%r", len(refusals), str(refusals[-1]))
        self._forget_all_but((*plans, *findings))
        waiting_count = len(due) - tried_count
        self._has_waiting = waiting_count > 0
        refused_count = len(refusals) + (failure is not None)
        return Posting(tuple(reasons), repeated_count, refused_count, waiting_count, failure)

    def assume_posted(self, announcements: Iterable[Announcement], now: float) -> None:
        """Notes announcements that an earlier process made, long enough ago that their Events may have expired."""
        for announcement in announcements:
            self._posted[announcement.event_name] = _Posted(now, 1)

    def _due(
        self, plans: Iterable[Announcement], findings: Iterable[Announcement], now: float
    ) -> list[tuple[Announcement, bool]]:
        """What is to be written now, and whether it stands; namespaces that failed last come last."""
        due = [(a, False) for a in plans if a.event_name not in self._posted]
        due += [(a, True) for a in findings if self._is_due(a, now)]
        due = [(a, is_standing) for a, is_standing in due if now >= self._may_be_tried_at(a)]
        return sorted(due, key=lambda entry: self._namespace_not_before.get(entry[0].namespace, 0.0))

    def _is_due(self, announcement: Announcement, now: float) -> bool:
        posted = self._posted.get(announcement.event_name)
        return posted is None or now - posted.written_at >= REPEAT_SECONDS

    def _may_be_tried_at(self, announcement: Announcement) -> float:
        return max(
            self._not_before.get(announcement.event_name, 0.0),
            self._namespace_not_before.get(announcement.namespace, 0.0),
        )

    def _create(self, announcement: Announcement, now: float) -> bool:
        event = event_object(announcement, instance=self._instance, now=now)
        is_posted = True
        try:
            self._client.create(events_path(announcement.namespace), event)
        except ConflictError:
            is_posted = announcement.is_change and self._renew(announcement, now)  # else an earlier process posted it
        except (NotFoundError, ForbiddenError) as error:
            if isinstance(error, ForbiddenError) and _BEING_TERMINATED not in error.message:
                raise
            is_posted = False  # the namespace goes; there is nobody left to tell
        self._posted[announcement.event_name] = _Posted(now, 1)
        if not is_posted:
            return False
        LOG.log(
            logging.WARNING if announcement.is_warning else logging.INFO,
            "event posted reason=%s pod=%s/%s text=%r",
            announcement.reason,
            announcement.namespace,
            announcement.pod,
            announcement.text,
        )
        return True

    def _renew(self, announcement: Announcement, now: float) -> bool:
        """Whether the Event of the plan that the pod had before and has again tells of now."""
        path = event_path(announcement.namespace, announcement.event_name)
        try:
            self._client.merge_patch(path, renewed_event(announcement, now=now))
        except NotFoundError:
            return False
        return True

    def _repeat(self, announcement: Announcement, now: float) -> bool:
        """Whether the Event was posted, is still there, and now counts one more."""
        posted = self._posted.get(announcement.event_name)
        if posted is None:
            return False
        path = event_path(announcement.namespace, announcement.event_name)
        try:
            self._client.merge_patch(path, repeated_event(count=posted.count + 1, now=now))
        except NotFoundError:
            return False
        posted.count += 1
        posted.written_at = now
        return True

    def _forget_all_but(self, announcements: Collection[Announcement]) -> None:
        names = {announcement.event_name for announcement in announcements}
        namespaces = {announcement.namespace for announcement in announcements}
        _keep_only(names, self._posted, self._not_before)
        _keep_only(namespaces, self._namespace_not_before)


def _keep_only(keys: set[str], *held: dict[str, Any]) -> None:
    for one in held:
        for key in one.keys() - keys:
            del one[key]


def _is_about_the_event(error: KubeError) -> bool:
    """Whether the API server is well, and does not want this Event."""
    is_about_us = isinstance(error, UnauthorizedError | TooManyRequestsError)
    return isinstance(error, ApiStatusError) and error.code < 500 and not is_about_us
