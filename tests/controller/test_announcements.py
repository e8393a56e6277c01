"""Which Events pods get, and that their names depend on nothing but what they say."""

from dataclasses import replace

import pytest

from cpuplan.controller.announcements import (
    MOST_TEXT_LENGTH,
    Announcement,
    event_object,
    finding_announcement,
    plan_announcement,
    repeated_event,
)
from cpuplan.controller.findings import Finding, FindingKind
from cpuplan.controller.observed import observed_pod
from cpuplan.controller.planfacts import facts_of
from cpuplan.model import reasons
from tests.controller.pods import CREATED_SECONDS, Json, planned, pod, pod_plan


def announced(content: Json) -> Announcement:
    """The announcement of a pod's plan."""
    announcement = plan_announcement(observed_pod(content))
    assert announcement is not None
    return announcement


@pytest.mark.parametrize(
    ("content", "reason", "text", "is_warning"),
    [
        (planned("a"), "PlanMade", "plan made (Pinned): one core per worker", False),
        (planned("a", generation=2), "PlanMade", "plan made (Pinned): one core per worker", False),
        (
            pod("a", plan=pod_plan("a", reason=reasons.WOULD_PIN_ALL, why="too small")),
            "PlanMade",
            "plan made (NotPinned): too small",
            False,
        ),
        (
            pod("a", plan=pod_plan("a", reason=reasons.WAITING_FOR_DEVICES, why="asked 2, has 1")),
            "PlanWaiting",
            "no plan yet: asked 2, has 1",
            False,
        ),
        (
            pod("a", plan=pod_plan("a", reason=reasons.CPU_GONE, why="CPU 4 is offline")),
            "PlanRefused",
            "no plan can be made: CPU 4 is offline",
            True,
        ),
        (pod("a", annotations={"cpuplan.dev/status": "Off"}), "PlanMade", "plan made (Off)", False),
    ],
)
def test_a_plan_is_announced(content: Json, reason: str, text: str, is_warning: bool) -> None:
    announcement = announced(content)
    assert (announcement.reason, announcement.text, announcement.is_warning) == (reason, text, is_warning)


@pytest.mark.parametrize("content", [pod("a"), pod("a", plan=pod_plan("a", uid="other"))], ids=["no plan", "copied"])
def test_without_a_plan_of_its_own_a_pod_announces_nothing(content: Json) -> None:
    assert plan_announcement(observed_pod(content)) is None


def test_the_same_plan_has_the_same_event_in_every_process() -> None:
    assert announced(planned("llm-0")).event_name == "llm-0.20772dcef574e45e"


def changed(before: Json, now: Json) -> Announcement:
    """The announcement of a pod whose plan was seen to change."""
    announcement = plan_announcement(observed_pod(now), facts_of(observed_pod(before)))
    assert announcement is not None
    return announcement


def test_a_change_says_what_changed() -> None:
    unpinned = pod("a", plan=pod_plan("a", reason=reasons.WOULD_PIN_ALL, why="too small", generation=2))
    announcement = changed(planned("a"), unpinned)
    assert (announcement.reason, announcement.text) == (
        "PlanChanged",
        "plan changed (NotPinned; status Pinned → NotPinned; engine's reason pinned → would-pin-all; "
        "engine's step CPUs 4,36 → none; engine's result CPU 31 → none): too small",
    )


def with_shortage() -> Json:
    """A pod whose CPU limit is too small for its worker, with the annotations that an agent writes."""
    plan = pod_plan("a")
    ((name, engine),) = plan.containers
    short = replace(plan, containers=((name, replace(engine, shortage="1 usable CPU cannot serve 1 worker")),))
    return pod("a", plan=short)


def test_a_quota_too_small_for_the_workers_is_a_warning_that_is_said_with_the_plan() -> None:
    announcement = announced(with_shortage())
    assert (announcement.reason, announcement.is_warning) == ("PlanMade", True)
    assert announcement.text == "plan made (Pinned): one core per worker; 1 usable CPU cannot serve 1 worker"


def test_a_quota_that_becomes_too_small_is_an_event_of_its_own() -> None:
    announcement = changed(planned("a"), with_shortage())
    assert (announcement.reason, announcement.is_warning) == ("PlanChanged", True)
    assert "engine's CPU shortage none → yes" in announcement.text
    assert announcement.event_name != announced(planned("a")).event_name


def test_the_first_plan_after_the_devices_came_is_made_not_changed() -> None:
    waiting = pod("a", plan=pod_plan("a", reason=reasons.WAITING_FOR_DEVICES, why="asked 2, has 1"))
    assert changed(waiting, planned("a", generation=2)).reason == "PlanMade"


def test_a_change_and_the_same_plan_seen_first_have_one_event() -> None:
    now = pod("a", plan=pod_plan("a", reason=reasons.WOULD_PIN_ALL, generation=2))
    assert changed(planned("a"), now).event_name == announced(now).event_name


def test_a_generation_that_says_the_same_has_the_same_event() -> None:
    assert announced(planned("a")).event_name == announced(planned("a", generation=2)).event_name


def test_another_plan_or_pod_has_another_event() -> None:
    other = pod("a", plan=pod_plan("a", reason=reasons.WOULD_PIN_ALL))
    assert len({announced(content).event_name for content in (planned("a"), other, planned("b"))}) == 3


def test_another_refusal_has_another_event() -> None:
    refusals = [pod("a", plan=pod_plan("a", reason=reasons.INVALID_SETTING, why=why)) for why in ("banana", "apple")]
    assert len({announced(content).event_name for content in refusals}) == 2


def test_long_pod_names_leave_a_valid_event_name() -> None:
    name = announced(planned("a." * 126)).event_name
    assert len(name) <= 253
    assert ".." not in name


def test_an_event_is_complete() -> None:
    pod_seen = observed_pod(planned("llm-0"))
    announcement = finding_announcement(pod_seen, Finding(FindingKind.NO_PLAN, "no plan"))
    assert event_object(announcement, instance="operator-0", now=CREATED_SECONDS) == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": announcement.event_name, "namespace": "demo"},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": "demo", "name": "llm-0", "uid": "uid-llm-0"},
        "reason": "NoPlan",
        "message": "no plan",
        "type": "Warning",
        "firstTimestamp": "2026-05-04T10:00:00Z",
        "lastTimestamp": "2026-05-04T10:00:00Z",
        "count": 1,
        "source": {"component": "cpuplan-operator"},
        "reportingComponent": "cpuplan-operator",
        "reportingInstance": "operator-0",
    }


def test_texts_longer_than_the_api_takes_are_cut() -> None:
    announcement = announced(planned("llm-0", why="x" * 2000))
    message = event_object(announcement, instance="operator-0", now=0)["message"]
    assert (len(message), message[-1]) == (MOST_TEXT_LENGTH, "…")


def test_a_repeated_event_says_when_and_how_often() -> None:
    assert repeated_event(count=3, now=CREATED_SECONDS) == {"count": 3, "lastTimestamp": "2026-05-04T10:00:00Z"}
