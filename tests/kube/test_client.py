"""The client against a real HTTP server: verbs, retries, and every kind of bad answer."""

import socket
import threading
from pathlib import Path

import pytest
import urllib3

from cpuplan.kube.answers import MAX_EVENT_BYTES, WatchEvent, WatchStream
from cpuplan.kube.client import KubeClient
from cpuplan.kube.connection import connect
from cpuplan.kube.errors import (
    ApiStatusError,
    ApiUnreachableError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    TooManyRequestsError,
    UnauthorizedError,
    UnexpectedAnswerError,
)
from cpuplan.kube.paths import configmap_path, configmaps_path, pod_path, pods_path
from tests.fakeapi import FakeApi

POD = pod_path("default", "llm-0")


def watch(client: KubeClient, resource_version: str, *, read_timeout_seconds: float = 10) -> WatchStream:
    """A watch of all pods."""
    return client.watch(
        pods_path(),
        resource_version=resource_version,
        server_timeout_seconds=300,
        read_timeout_seconds=read_timeout_seconds,
    )


def next_event(stream: WatchStream) -> WatchEvent:
    """The next event of a stream."""
    return next(iter(stream))


def test_objects_are_created_read_replaced_and_deleted(api: FakeApi, client: KubeClient) -> None:
    client.create(configmaps_path("cpuplan"), {"metadata": {"name": "cpuplan"}, "data": {"a": "1"}})
    found = client.get(configmap_path("cpuplan", "cpuplan"))
    client.replace(configmap_path("cpuplan", "cpuplan"), {**found, "data": {"a": "2"}})
    assert client.get(configmap_path("cpuplan", "cpuplan"))["data"] == {"a": "2"}
    client.delete(configmap_path("cpuplan", "cpuplan"))
    assert api.object(configmap_path("cpuplan", "cpuplan")) is None


def test_a_merge_patch_sets_and_removes_keys(api: FakeApi, client: KubeClient) -> None:
    api.put(POD, {"metadata": {"annotations": {"kept": "1", "removed": "2"}}})
    client.merge_patch(POD, {"metadata": {"annotations": {"removed": None, "added": "3"}}})
    assert client.get(POD)["metadata"]["annotations"] == {"kept": "1", "added": "3"}


def test_names_cannot_reach_other_paths() -> None:
    assert pod_path("a/b", "../c") == "/api/v1/namespaces/a%2Fb/pods/..%2Fc"


def test_a_list_is_read_in_chunks(api: FakeApi, client: KubeClient) -> None:
    for number in range(5):
        api.put(pod_path("default", f"p{number}"), {})
    listed = client.list_objects(pods_path(), chunk_size=2)
    assert [item["metadata"]["name"] for item in listed.items] == ["p0", "p1", "p2", "p3", "p4"]
    assert [request.query.get("continue") for request in api.requests] == [None, "2", "4"]


def test_objects_come_one_after_another_and_the_next_chunk_only_when_it_is_their_turn(
    api: FakeApi, client: KubeClient
) -> None:
    for number in range(3):
        api.put(pod_path("default", f"p{number}"), {})
    objects = client.each_object(pods_path(), chunk_size=2)
    assert [next(objects)["metadata"]["name"] for _ in range(2)] == ["p0", "p1"]
    assert len(api.requests) == 1
    assert [item["metadata"]["name"] for item in objects] == ["p2"]
    assert [request.query["limit"] for request in api.requests] == ["2", "2"]


def test_a_list_from_the_cache_asks_for_version_zero_and_no_chunks(api: FakeApi, client: KubeClient) -> None:
    client.list_objects(pods_path(), field_selector="spec.nodeName=n1", not_older_than="0")
    assert api.requests[0].query == {"resourceVersion": "0", "fieldSelector": "spec.nodeName=n1"}


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
def test_a_passing_fault_is_retried(api: FakeApi, client: KubeClient, code: int) -> None:
    api.put(POD, {})
    api.fail(code, times=3)
    assert client.get(POD)["metadata"]["name"] == "llm-0"


def test_a_lasting_fault_is_reported_with_the_servers_text(api: FakeApi, client: KubeClient) -> None:
    api.fail(503, times=9)
    with pytest.raises(ApiStatusError, match=f"GET {POD} was answered with 503 Test: test: Test"):
        client.get(POD)
    assert len(api.requests) == 4


def test_a_create_is_not_repeated_when_it_may_have_arrived(api: FakeApi, client: KubeClient) -> None:
    api.fail(503)
    with pytest.raises(ApiStatusError):
        client.create(configmaps_path("cpuplan"), {"metadata": {"name": "cpuplan"}})
    assert len(api.requests) == 1


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (400, InvalidError),
        (401, UnauthorizedError),
        (403, ForbiddenError),
        (404, NotFoundError),
        (409, ConflictError),
        (410, GoneError),
        (422, InvalidError),
        (429, TooManyRequestsError),
        (418, ApiStatusError),
    ],
)
def test_each_refusal_has_its_class(
    api: FakeApi, client: KubeClient, code: int, expected: type[ApiStatusError]
) -> None:
    api.fail(code, times=4)
    with pytest.raises(expected) as caught:
        client.get(POD)
    assert caught.value.code == code


def test_a_redirect_is_not_followed(api: FakeApi, client: KubeClient) -> None:
    api.fail(302, headers={"Location": "http://127.0.0.1:1/"})
    with pytest.raises(ApiStatusError):
        client.get(POD)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b"[" * 100_000, b"\xff\xfe"])
def test_an_answer_that_is_no_object_is_named(api: FakeApi, client: KubeClient, body: bytes) -> None:
    api.fail(200, body=body)
    with pytest.raises(UnexpectedAnswerError, match=f"GET {POD}: the answer is no "):
        client.get(POD)


def test_a_proxys_page_instead_of_a_status_is_quoted(api: FakeApi, client: KubeClient) -> None:
    api.fail(403, body=b"<html>blocked</html>")
    with pytest.raises(ForbiddenError, match="<html>blocked</html>"):
        client.get(POD)


@pytest.mark.parametrize("body", [b'{"items": 3}', b'{"metadata": []}', b'{"metadata": {}, "items": "x"}'])
def test_a_list_that_is_none_is_named(api: FakeApi, client: KubeClient, body: bytes) -> None:
    api.fail(200, body=body)
    with pytest.raises(UnexpectedAnswerError, match="GET /api/v1/pods was not answered with a list of objects"):
        client.list_objects(pods_path())


def test_a_list_whose_items_are_null_is_empty(api: FakeApi, client: KubeClient) -> None:
    api.fail(200, body=b'{"metadata": {"resourceVersion": "7"}, "items": null}')
    assert client.list_objects(pods_path()).items == ()


def test_nobody_listening_is_one_sentence(tmp_path: Path) -> None:
    with FakeApi() as api:
        path = api.write_kubeconfig(tmp_path / "kubeconfig")
    connection = connect(path)
    client = KubeClient(connection, retries=urllib3.Retry(total=0))
    with pytest.raises(ApiUnreachableError, match=r"GET /api/v1/pods at http://127.* got no answer: .*refused"):
        client.get(pods_path())
    connection.close()


def test_a_server_that_never_answers_runs_into_the_read_timeout(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, FakeApi() as api:
        path = api.write_kubeconfig(tmp_path / "kubeconfig")
        path.write_text(path.read_text().replace(api.url, f"http://127.0.0.1:{silent.getsockname()[1]}"))
        connection = connect(path)
        client = KubeClient(connection, retries=urllib3.Retry(total=0))
        with pytest.raises(ApiUnreachableError, match="Read timed out"):
            client._exchange("GET", pods_path(), read_timeout_seconds=0.05)
        connection.close()


def test_a_watch_gives_events_in_order_and_ends_with_the_stream(api: FakeApi, client: KubeClient) -> None:
    stream = watch(client, client.list_objects(pods_path()).resource_version)
    api.put(POD, {})
    api.patch(POD, {"spec": {}})
    api.remove(POD)
    api.send_bookmarks()
    events = iter(stream)
    assert [next(events).kind for _ in range(4)] == ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    api.end_watches()
    assert list(events) == []


def test_a_watch_from_an_old_version_is_gone(api: FakeApi, client: KubeClient) -> None:
    version = client.list_objects(pods_path()).resource_version
    api.expire_history()
    with pytest.raises(GoneError):
        watch(client, version)


def test_an_error_in_the_stream_is_raised_as_its_class(api: FakeApi, client: KubeClient) -> None:
    stream = watch(client, client.list_objects(pods_path()).resource_version)
    api.send_status_in_watches(410, "Expired")
    with pytest.raises(GoneError, match="410 Expired"):
        next_event(stream)


def test_silence_in_a_watch_ends_at_the_read_timeout(api: FakeApi, client: KubeClient) -> None:
    stream = watch(client, client.list_objects(pods_path()).resource_version, read_timeout_seconds=0.05)
    with pytest.raises(ApiUnreachableError, match=r"watch /api/v1/pods broke off: .*timed out"):
        next_event(stream)


def test_a_watch_that_breaks_off_is_reported(api: FakeApi, client: KubeClient) -> None:
    stream = watch(client, client.list_objects(pods_path()).resource_version)
    api.end_watches(broken=True)
    with pytest.raises(ApiUnreachableError, match="broke off"):
        next_event(stream)


@pytest.mark.parametrize(
    "line",
    [
        b"garbage",
        b"[]",
        b'{"type": 3, "object": {}}',
        b'{"type": "ADDED"}',
        b'{"type":"ADDED","object":{"metadata":3}}',
    ],
)
def test_what_is_no_event_is_named(api: FakeApi, client: KubeClient, line: bytes) -> None:
    stream = watch(client, client.list_objects(pods_path()).resource_version)
    api.send_in_watches(line)
    with pytest.raises(UnexpectedAnswerError, match="watch /api/v1/pods"):
        next_event(stream)


def test_an_endless_line_is_not_read_to_its_end(api: FakeApi, client: KubeClient) -> None:
    stream = watch(client, client.list_objects(pods_path()).resource_version)
    api.send_in_watches(b"x" * (MAX_EVENT_BYTES + (1 << 17)))
    with pytest.raises(UnexpectedAnswerError, match="longer than"):
        next_event(stream)


def test_closing_a_watch_wakes_the_thread_that_waits_in_it(api: FakeApi, client: KubeClient) -> None:
    stream = watch(client, client.list_objects(pods_path()).resource_version, read_timeout_seconds=60)
    events: list[WatchEvent] = []
    reader = threading.Thread(target=lambda: events.extend(stream))
    reader.start()
    stream.close()
    reader.join(timeout=10)
    assert not reader.is_alive()
    assert events == []
