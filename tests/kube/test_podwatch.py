"""The watch of a node's pods against a server that loses, breaks, hangs and lies."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cpuplan.kube import podwatch
from cpuplan.kube.client import KubeClient
from cpuplan.kube.errors import KubeError
from cpuplan.kube.paths import pod_path
from cpuplan.kube.podwatch import PodChange, PodWatch
from tests.fakeapi import FakeApi, JsonObject

HERE = {"spec": {"nodeName": "n1"}}


class RecordedWaits(threading.Event):
    """A stop event that never waits, and keeps the times it was asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0)
        return self.is_set()


class Watched:
    """A running PodWatch and everything it told."""

    def __init__(self, api: FakeApi, client: KubeClient, monotonic: Callable[[], float]) -> None:
        self.api = api
        self.changes: list[str] = []
        self.errors: list[KubeError] = []
        self.stop = RecordedWaits()
        self.watch = PodWatch(
            client,
            "n1",
            on_change=self._keep,
            on_error=self.errors.append,
            stop=self.stop,
            source=random.Random(1),  # noqa: S311 - the same jitter in every run
            monotonic=monotonic,
            start_jitter_seconds=5,
        )

    def _keep(self, change: PodChange) -> None:
        with self.api._changed:
            self.changes.append(f"{change.kind.value} {change.pod.name}")
            self.api._changed.notify_all()

    def wait_for(self, *changes: str) -> None:
        """Waits until exactly these changes were told, in this order."""
        self.api.wait_until(lambda: self.changes == list(changes))


@contextmanager
def watching(api: FakeApi, client: KubeClient, monotonic: Callable[[], float] | None = None) -> Iterator[Watched]:
    """A PodWatch in a thread; ended at the end."""
    clock = iter(range(0, 1_000_000, 100))
    watched = Watched(api, client, monotonic or (lambda: float(next(clock))))
    thread = threading.Thread(target=watched.watch.run)
    thread.start()
    try:
        yield watched
    finally:
        watched.watch.close()
        thread.join(timeout=10)
        assert not thread.is_alive()


def put(api: FakeApi, name: str, content: JsonObject = HERE) -> None:
    """Creates or changes a pod."""
    api.put(pod_path("default", name), content)


def test_pods_that_are_there_come_go_and_change(api: FakeApi, client: KubeClient) -> None:
    put(api, "old")
    with watching(api, client) as watched:
        api.wait_for_watches()
        put(api, "new")
        api.patch(pod_path("default", "new"), {"metadata": {"annotations": {"step_thread_core": "auto"}}})
        api.remove(pod_path("default", "old"))
        watched.wait_for("added old", "added new", "modified new", "deleted old")
        assert [pod.annotations for pod in watched.watch.pods()] == [{"step_thread_core": "auto"}]
        assert watched.watch.is_synced


def test_only_this_nodes_pods_are_asked_for(api: FakeApi, client: KubeClient) -> None:
    put(api, "elsewhere", {"spec": {"nodeName": "n2"}})
    with watching(api, client) as watched:
        api.wait_for_watches()
        assert watched.watch.pods() == ()
    assert {request.query["fieldSelector"] for request in api.requests} == {"spec.nodeName=n1"}


def test_the_list_is_read_from_the_watch_cache_and_the_watch_has_bookmarks_and_a_random_end(
    api: FakeApi, client: KubeClient
) -> None:
    with watching(api, client):
        api.wait_for_watches()
        api.end_watches()
        api.wait_until(lambda: len(api.requests) == 3)
    listing, *watches = (request.query for request in api.requests[:3])
    assert listing["resourceVersion"] == "0"
    assert {query["allowWatchBookmarks"] for query in watches} == {"true"}
    timeouts = [int(query["timeoutSeconds"]) for query in watches]
    assert timeouts[0] != timeouts[1]
    assert all(300 <= seconds <= 600 for seconds in timeouts)


def test_the_start_is_jittered(api: FakeApi, client: KubeClient) -> None:
    with watching(api, client) as watched:
        api.wait_for_watches()
    assert 0 < watched.stop.waits[0] < 5


def test_a_watch_that_ends_continues_from_the_last_version_without_a_list(api: FakeApi, client: KubeClient) -> None:
    with watching(api, client) as watched:
        api.wait_for_watches()
        put(api, "a")
        watched.wait_for("added a")
        api.end_watches()
        put(api, "b")
        watched.wait_for("added a", "added b")
    assert len([request for request in api.requests if "watch" not in request.query]) == 1


def test_a_bookmark_moves_the_version_that_a_new_watch_starts_from(api: FakeApi, client: KubeClient) -> None:
    with watching(api, client):
        api.wait_for_watches()
        put(api, "elsewhere", {"spec": {"nodeName": "n2"}})
        api.send_bookmarks()
        api.end_watches()
        api.wait_until(lambda: len(api.requests) == 3)
    first, second = (int(request.query["resourceVersion"]) for request in api.requests[1:3])
    assert second > first


def test_deletions_in_a_gap_are_deletions(api: FakeApi, client: KubeClient) -> None:
    put(api, "gone")
    put(api, "changed")
    put(api, "same")
    with watching(api, client) as watched:
        api.wait_for_watches()
        watched.wait_for("added changed", "added gone", "added same")
        api.freeze_watches()
        api.remove(pod_path("default", "gone"))
        api.patch(pod_path("default", "changed"), {"status": {"phase": "Running"}})
        put(api, "born")
        api.expire_history()
        api.end_watches()
        api.thaw_watches_of_the_future_only()
        watched.wait_for("added changed", "added gone", "added same", "deleted gone", "added born", "modified changed")


def test_a_pod_that_was_replaced_by_its_namesake_in_a_gap_is_deleted_and_added(
    api: FakeApi, client: KubeClient
) -> None:
    put(api, "llm")
    with watching(api, client) as watched:
        api.wait_for_watches()
        api.freeze_watches()
        api.remove(pod_path("default", "llm"))
        put(api, "llm")
        api.expire_history()
        api.end_watches()
        api.thaw_watches_of_the_future_only()
        watched.wait_for("added llm", "deleted llm", "added llm")


def test_an_expired_status_in_the_stream_lists_again(api: FakeApi, client: KubeClient) -> None:
    with watching(api, client) as watched:
        api.wait_for_watches()
        api.send_status_in_watches(410, "Expired")
        api.wait_until(lambda: len(api.requests) == 4)
        assert watched.errors == []
    assert "watch" not in api.requests[2].query


def test_a_server_that_calls_its_own_list_too_old_is_asked_less_and_less_often(
    api: FakeApi, client: KubeClient
) -> None:
    api.fail(410, times=4, watch=True)
    with watching(api, client) as watched:
        api.wait_for_watches()
        assert watched.errors == []
        _, *waits = watched.stop.waits
    assert [round(wait / bound, 2) >= 0.5 for wait, bound in zip(waits, (0.5, 1, 2, 4), strict=True)] == [True] * 4
    assert sorted(waits) == waits


def test_garbage_in_the_stream_is_reported_and_listed_over(api: FakeApi, client: KubeClient) -> None:
    with watching(api, client) as watched:
        api.wait_for_watches()
        api.send_in_watches(b"<html>")
        put(api, "a")
        watched.wait_for("added a")
        assert [str(error) for error in watched.errors] == ["watch /api/v1/pods: the answer is no JSON: '<html>'"]


def test_failures_back_off_longer_each_time_and_at_most_half_a_minute(api: FakeApi, client: KubeClient) -> None:
    put(api, "a")
    api.fail(403, times=12)
    with watching(api, client) as watched:
        watched.wait_for("added a")
    waits = watched.stop.waits[1:13]
    bounds = [0.5, 1, 2, 4, 8, 16, 30, 30, 30, 30, 30, 30]
    assert all(bound / 2 <= wait <= bound for wait, bound in zip(waits, bounds, strict=True))
    assert len(watched.errors) == 12


def test_watches_that_end_at_once_are_slowed_down(api: FakeApi, client: KubeClient) -> None:
    with watching(api, client, monotonic=lambda: 0.0) as watched:
        api.wait_for_watches()
        api.end_watches()
        api.wait_until(lambda: len(api.requests) == 3)
        assert len(watched.stop.waits) == 2


def test_a_silent_watch_is_given_up_and_opened_again(
    api: FakeApi, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podwatch, "READ_TIMEOUT_SECONDS", 0.05)
    with watching(api, client) as watched:
        api.wait_until(lambda: len([r for r in api.requests if "watch" in r.query]) >= 2)
        put(api, "a")
        watched.wait_for("added a")


def fail(change: PodChange) -> None:
    """A listener that fails."""
    raise ZeroDivisionError(change.pod.name)


def test_a_listener_that_fails_does_not_end_the_watch(api: FakeApi, client: KubeClient) -> None:
    with watching(api, client) as watched:
        api.wait_for_watches()
        keep, watched.watch._on_change = watched.watch._on_change, fail
        put(api, "a")
        api.wait_until(lambda: bool(watched.errors))
        watched.watch._on_change = keep
        put(api, "b")
        api.wait_until(lambda: "added b" in watched.changes)
    assert str(watched.errors[0]) == "the watch failed: ZeroDivisionError: a"


def test_odd_pods_are_left_out_and_the_others_kept(api: FakeApi, client: KubeClient) -> None:
    api.fail(
        200,
        watch=False,
        body=b'{"metadata": {"resourceVersion": "1000"}, "items": [{}, {"metadata": {"name": "x"}}, 3,'
        b' {"metadata": {"name": "a", "namespace": "d", "uid": "1"}}]}',
    )
    with watching(api, client) as watched:
        watched.wait_for("added a")


def test_stopping_ends_a_watch_that_waits(api: FakeApi, client: KubeClient) -> None:
    with watching(api, client):
        api.wait_for_watches()


def test_the_answer_to_an_own_write_counts_until_the_watch_shows_something_newer(
    api: FakeApi, client: KubeClient
) -> None:
    put(api, "a")
    with watching(api, client) as watched:
        api.wait_for_watches()
        watched.wait_for("added a")
        api.freeze_watches()
        api.patch(pod_path("default", "a"), {"status": {"phase": "Pending"}})
        answer = client.merge_patch(
            pod_path("default", "a"), {"metadata": {"annotations": {"cpuplan.dev/status": "Off"}}}
        )
        watched.watch.learn(answer)
        assert [pod.annotations for pod in watched.watch.pods()] == [{"cpuplan.dev/status": "Off"}]
        api.thaw_watches()
        put(api, "b")
        watched.wait_for("added a", "modified a", "added b")
        assert {pod.name: pod.annotations for pod in watched.watch.pods()}["a"] == {"cpuplan.dev/status": "Off"}


def test_the_answer_to_an_own_write_never_hides_what_was_written_after_it(api: FakeApi, client: KubeClient) -> None:
    put(api, "a")
    with watching(api, client) as watched:
        api.wait_for_watches()
        answer = client.get(pod_path("default", "a"))
        api.patch(pod_path("default", "a"), {"metadata": {"annotations": {"step_thread_core": "auto"}}})
        watched.wait_for("added a", "modified a")
        watched.watch.learn(answer)
        assert [pod.annotations for pod in watched.watch.pods()] == [{"step_thread_core": "auto"}]


def test_a_list_that_was_on_its_way_meanwhile_does_not_hide_an_own_write(
    api: FakeApi, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(api, "a")
    real = client.list_objects
    with watching(api, client) as watched:
        api.wait_for_watches()
        watched.wait_for("added a")
        api.freeze_watches()

        def write_meanwhile(*arguments: Any, **options: Any) -> Any:
            listed = real(*arguments, **options)
            patch = {"metadata": {"annotations": {"cpuplan.dev/status": "Off"}}}
            watched.watch.learn(client.merge_patch(pod_path("default", "a"), patch))
            return listed

        monkeypatch.setattr(client, "list_objects", write_meanwhile)
        watched.watch._list()
        assert [pod.annotations for pod in watched.watch.pods()] == [{"cpuplan.dev/status": "Off"}]
        assert watched.changes == ["added a"]


def test_no_list_leads_back_before_what_was_seen(api: FakeApi, client: KubeClient) -> None:
    """Another API server may lag behind."""
    put(api, "a")
    with watching(api, client) as watched:
        api.wait_for_watches()
        put(api, "b")
        watched.wait_for("added a", "added b")
        api.send_status_in_watches(410, "Expired")
        api.wait_until(lambda: len(lists_of(api)) == 2)
        seen = api.object(pod_path("default", "b"))
    assert seen is not None
    assert lists_of(api) == ["0", seen["metadata"]["resourceVersion"]]


@pytest.mark.parametrize("code", [410, 504])
def test_a_server_that_does_not_come_to_what_was_seen_is_asked_for_what_it_has(
    api: FakeApi, client: KubeClient, code: int
) -> None:
    put(api, "a")
    with watching(api, client) as watched:
        api.wait_for_watches()
        watched.wait_for("added a")
        # The client itself tries 504 four times.
        api.fail(code, times=1 if code == 410 else 4, watch=False, method="GET")
        api.send_status_in_watches(410, "Expired")
        api.wait_until(lambda: lists_of(api)[-1] == "0" and len(lists_of(api)) > 2)


def lists_of(api: FakeApi) -> list[str]:
    """The resource version that each list asked for."""
    return [request.query["resourceVersion"] for request in api.requests_of("GET") if not request.is_watch]


def test_the_answer_to_a_write_does_not_bring_a_deleted_pod_back(api: FakeApi, client: KubeClient) -> None:
    put(api, "a")
    with watching(api, client) as watched:
        api.wait_for_watches()
        answer = client.get(pod_path("default", "a"))
        api.remove(pod_path("default", "a"))
        watched.wait_for("added a", "deleted a")
        watched.watch.learn(answer)
        assert watched.watch.pods() == ()
