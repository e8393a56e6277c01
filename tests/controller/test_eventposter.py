"""Events are posted once, renewed now and then, and never twice after a restart."""

import pytest

from cpuplan.controller.announcements import Announcement
from cpuplan.controller.eventposter import FAILED_SECONDS, REFUSED_SECONDS, REPEAT_SECONDS, EventPoster, Posting
from cpuplan.kube.client import KubeClient
from tests.controller.conftest import writes
from tests.fakeapi import FakeApi

EVENTS = "/api/v1/namespaces/demo/events"


def saying(text: str, *, reason: str = "PlanMade", namespace: str = "demo") -> Announcement:
    """An announcement on the pod llm-0."""
    return Announcement(namespace, "llm-0", "uid-llm-0", reason, False, text, text)


def counts(posting: Posting) -> tuple[int, int, int, int]:
    """How many Events were new, repeated, not taken, and left for the next pass."""
    return len(posting.reasons), posting.repeated_count, posting.refused_count, posting.waiting_count


@pytest.fixture
def poster(client: KubeClient) -> EventPoster:
    """A poster that has posted nothing yet."""
    return EventPoster(client, instance="operator-0")


def test_a_plan_is_announced_once(api: FakeApi, poster: EventPoster) -> None:
    assert poster.post([saying("one")], [], 0).reasons == ("PlanMade",)
    assert poster.post([saying("one")], [], REPEAT_SECONDS * 2).reasons == ()
    assert writes(api) == [("POST", EVENTS)]


def test_the_next_plan_is_announced_too(api: FakeApi, poster: EventPoster) -> None:
    poster.post([saying("one")], [], 0)
    poster.post([saying("two")], [], 1)
    assert len(writes(api)) == 2


def test_after_a_restart_nothing_is_announced_twice(api: FakeApi, client: KubeClient, poster: EventPoster) -> None:
    poster.post([saying("one")], [saying("missing", reason="NoPlan")], 0)
    restarted = EventPoster(client, instance="operator-1")
    assert restarted.post([saying("one")], [saying("missing", reason="NoPlan")], 1).reasons == ()
    assert restarted.post([saying("one")], [saying("missing", reason="NoPlan")], 2).reasons == ()
    assert len(client.list_objects(EVENTS).items) == 2
    assert len(writes(api)) == 4


def test_an_old_plan_is_not_announced_again(api: FakeApi, poster: EventPoster) -> None:
    poster.assume_posted([saying("one")], 0)
    assert poster.post([saying("one")], [], 1).reasons == ()
    assert writes(api) == []


def test_a_standing_finding_is_renewed_in_its_event(api: FakeApi, poster: EventPoster) -> None:
    finding = saying("missing", reason="NoPlan")
    poster.post([], [finding], 0)
    assert poster.post([], [finding], REPEAT_SECONDS - 1).repeated_count == 0
    assert poster.post([], [finding], REPEAT_SECONDS).repeated_count == 1
    event = api.object(f"{EVENTS}/{finding.event_name}")
    assert event is not None
    assert (event["count"], event["lastTimestamp"]) == (2, "1970-01-01T00:30:00Z")


def test_a_standing_finding_whose_event_expired_is_posted_anew(api: FakeApi, poster: EventPoster) -> None:
    finding = saying("missing", reason="NoPlan")
    poster.post([], [finding], 0)
    api.remove(f"{EVENTS}/{finding.event_name}")
    assert poster.post([], [finding], REPEAT_SECONDS).reasons == ("NoPlan",)


def test_a_finding_that_went_and_came_again_is_posted_again(api: FakeApi, poster: EventPoster) -> None:
    finding = saying("missing", reason="NoPlan")
    poster.post([], [finding], 0)
    poster.post([], [], 1)
    api.remove(f"{EVENTS}/{finding.event_name}")
    assert poster.post([], [finding], 2).reasons == ("NoPlan",)


def test_a_flood_of_announcements_is_spread_over_passes(api: FakeApi, client: KubeClient) -> None:
    poster = EventPoster(client, instance="operator-0", most_writes_per_pass=3)
    flood = [saying(word) for word in ("one", "two", "three", "four", "five")]
    first = poster.post(flood, [], 0)
    assert (len(first.reasons), first.waiting_count) == (3, 2)
    second = poster.post(flood, [], 1)
    assert (len(second.reasons), second.waiting_count) == (2, 0)
    assert len(writes(api)) == 5


@pytest.mark.parametrize(
    ("code", "seconds"),
    [(403, REFUSED_SECONDS), (422, REFUSED_SECONDS), (429, FAILED_SECONDS), (500, FAILED_SECONDS)],
)
def test_an_event_that_was_not_taken_is_posted_later(
    api: FakeApi, poster: EventPoster, code: int, seconds: float
) -> None:
    api.fail(code, method="POST")
    assert poster.post([saying("one")], [], 0).refused_count == 1
    assert poster.post([saying("one")], [], seconds - 1) == Posting((), 0, 0, 0)
    assert poster.post([saying("one")], [], seconds).reasons == ("PlanMade",)


def test_an_event_that_is_refused_keeps_back_no_other(
    api: FakeApi, poster: EventPoster, caplog: pytest.LogCaptureFixture
) -> None:
    api.fail(403, method="POST", body=b'{"kind":"Status","code":403,"message":"exceeded quota: count/events"}')
    assert poster.post([saying("one"), saying("two")], [], 0) == Posting(("PlanMade",), 0, 1, 0)
    assert "events not taken, to be tried again count=1 error='POST /api/v1/namespaces/demo/events" in caplog.text
    assert "exceeded quota: count/events" in caplog.text


@pytest.mark.parametrize("code", [401, 429, 500])
def test_an_api_server_that_fails_or_asks_to_slow_down_gets_no_more_events_in_that_pass(
    api: FakeApi, poster: EventPoster, code: int
) -> None:
    api.fail(code, times=1000, method="POST")
    posting = poster.post([saying("one"), saying("two"), saying("three", namespace="other")], [], 0)
    assert counts(posting) == (0, 0, 1, 2)
    assert str(code) in str(posting.failure)
    assert poster.has_waiting
    assert len(writes(api)) == 1


def test_after_a_failure_the_other_namespaces_come_first(api: FakeApi, poster: EventPoster) -> None:
    """A webhook that is down for one namespace."""
    api.fail(500, times=1000, method="POST", path_part="/demo/")
    events = [saying("one"), saying("two"), saying("elsewhere", namespace="other")]
    poster.post(events, [], 0)
    assert poster.post(events, [], 1) == Posting(("PlanMade",), 0, 0, 0)
    later = [*events, saying("elsewhere too", namespace="other")]
    assert counts(poster.post(later, [], FAILED_SECONDS)) == (1, 0, 1, 1)


def test_a_namespace_that_takes_events_again_gets_all_of_them(api: FakeApi, poster: EventPoster) -> None:
    api.fail(500, method="POST")
    poster.post([saying("one"), saying("two")], [], 0)
    assert poster.post([saying("one"), saying("two")], [], FAILED_SECONDS).reasons == ("PlanMade", "PlanMade")
    assert poster.post([saying("three")], [], FAILED_SECONDS + 1).reasons == ("PlanMade",)


def test_a_refused_repetition_keeps_back_no_other(api: FakeApi, poster: EventPoster) -> None:
    findings = [saying("missing", reason="NoPlan"), saying("stale", reason="StalePlan")]
    poster.post([], findings, 0)
    api.fail(403, method="PATCH")
    assert poster.post([], findings, REPEAT_SECONDS) == Posting((), 1, 1, 0)


def test_a_namespace_that_is_being_deleted_is_left_in_peace(api: FakeApi, poster: EventPoster) -> None:
    status = b'{"kind":"Status","code":403,"reason":"Forbidden","message":"... because it is being terminated"}'
    api.fail(403, method="POST", body=status)
    assert poster.post([saying("one")], [], 0).reasons == ()
    assert poster.post([saying("one")], [], 1).reasons == ()
    assert len(writes(api)) == 1
