"""Which Events a pod gets: pure, with names that stay the same over restarts, so that none is posted twice."""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime

from ..kube.answers import JsonObject
from ..model import reasons
from ..model.podplan import Status
from .findings import Finding
from .observed import ObservedPod
from .planfacts import PlanFacts, differences, facts_of, has_shortage, is_waiting

COMPONENT = "cpuplan-operator"
"""The Events' source, as `kubectl describe pod` shows it."""

MOST_TEXT_LENGTH = 1024
"""Longer messages are refused (k8s.io/kubernetes/pkg/apis/core/validation/events.go)."""

_MOST_NAME_LENGTH = 253
_DIGEST_LENGTH = 16

_PLAN = "Plan"
"""How the reasons of plan_announcement begin: PlanMade, PlanChanged, …; no finding's does."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """One Event to be posted on a pod.

    Attributes:
        reason: CamelCase word for programs.
        is_warning: somebody should act.
        key: what makes it this Event and no other: the same key is never posted twice on one pod.
        text: the sentence.
        is_change: it was seen to come about: an older Event of the same key tells of an earlier time.
    """

    namespace: str
    pod: str
    uid: str
    reason: str
    is_warning: bool
    key: str
    text: str
    is_change: bool = False

    @property
    def event_name(self) -> str:
        """The Event's name, the same whenever the same is announced, also by a process that saw no change."""
        subject = _PLAN if self.reason.startswith(_PLAN) else self.reason
        digest = hashlib.sha256(f"{self.uid}\0{subject}\0{self.key}".encode()).hexdigest()[:_DIGEST_LENGTH]
        return f"{self.pod[: _MOST_NAME_LENGTH - _DIGEST_LENGTH - 1].rstrip('.-')}.{digest}"


def plan_announcement(pod: ObservedPod, before: PlanFacts | None = None) -> Announcement | None:
    """What is to be said of the plan that a pod has now; None without one.

    Args:
        before: what the plan said before its last change; None where no change was seen.
    """
    facts = facts_of(pod)
    if facts is None:
        return None
    if pod.status == Status.ERROR:
        reason, lead = "PlanRefused", "no plan can be made"
    elif pod.plan is not None and reasons.WAITING_FOR_DEVICES in pod.plan.reasons:
        reason, lead = "PlanWaiting", "no plan yet"
    elif before is not None and not is_waiting(before):
        reason, lead = "PlanChanged", f"plan changed ({pod.status}; {differences(before, facts)})"
    else:
        reason, lead = "PlanMade", f"plan made ({pod.status})"
    return Announcement(
        namespace=pod.namespace,
        pod=pod.name,
        uid=pod.uid,
        reason=reason,
        is_warning=pod.status == Status.ERROR or has_shortage(facts),
        key="\0".join(f"{name} {value}" for name, value in facts),
        text=f"{lead}: {pod.why}" if pod.why else lead,
        is_change=before is not None,
    )


def finding_announcement(pod: ObservedPod, finding: Finding) -> Announcement:
    """A finding as an Event."""
    return Announcement(
        namespace=pod.namespace,
        pod=pod.name,
        uid=pod.uid,
        reason=str(finding.kind),
        is_warning=True,
        key=finding.key,
        text=finding.text,
    )


def event_object(announcement: Announcement, *, instance: str, now: float) -> JsonObject:
    """The Event (core/v1) of an announcement.

    Args:
        instance: which process reports.
        now: seconds since the epoch.
    """
    involved = {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": announcement.namespace,
        "name": announcement.pod,
        "uid": announcement.uid,
    }
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": announcement.event_name, "namespace": announcement.namespace},
        "involvedObject": involved,
        "reason": announcement.reason,
        "message": _shortened(announcement.text),
        "type": "Warning" if announcement.is_warning else "Normal",
        "firstTimestamp": second_time(now),
        "lastTimestamp": second_time(now),
        "count": 1,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": instance[:128],
    }


def renewed_event(announcement: Announcement, *, now: float) -> JsonObject:
    """The merge patch that makes an Event of an earlier time, when the same was so, tell of now."""
    return {
        "reason": announcement.reason,
        "message": _shortened(announcement.text),
        "lastTimestamp": second_time(now),
    }


def repeated_event(*, count: int, now: float) -> JsonObject:
    """The merge patch that says of an Event that what it tells still holds, for the `count`th time."""
    return {"count": count, "lastTimestamp": second_time(now)}


def second_time(now: float) -> str:
    """An API Time: RFC 3339 in UTC, whole seconds."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(now: float) -> str:
    """An API MicroTime: RFC 3339 in UTC with six digits."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _shortened(text: str) -> str:
    return text if len(text) <= MOST_TEXT_LENGTH else text[: MOST_TEXT_LENGTH - 1] + "…"
