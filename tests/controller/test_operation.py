"""The operation as it runs: listing first, changes written, lost deletions found, the Lease respected."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from cpuplan.controller.eventposter import EventPoster
from cpuplan.controller.indexstore import IndexStore
from cpuplan.controller.metrics import OperatorMetrics
from cpuplan.controller.nodes import NodeKnowledge
from cpuplan.controller.operation import LeadershipLostError, Operation, Rhythm
from cpuplan.controller.reconciler import Reconciler, Waits
from cpuplan.kube.backoff import Backoff
from cpuplan.kube.client import KubeClient
from tests.controller.conftest import FakeClock, writes
from tests.controller.pods import CREATED_SECONDS, Json, planned
from tests.fakeapi import FakeApi
from tests.waiting import until

INDEX = "/api/v1/namespaces/cpuplan/configmaps/cpuplan"
PODS = "/api/v1/namespaces/demo/pods"
OTHER = "/api/v1/namespaces/other"


@dataclass(slots=True)
class Stage:
    """A cluster in memory and an operation that works on it."""

    api: FakeApi
    client: KubeClient
    metrics: OperatorMetrics = field(default_factory=OperatorMetrics)
    is_leading: bool = True
    clock: Callable[[], float] = time.monotonic

    def operation(self, *, resync_seconds: float = 3600, tick_seconds: float = 0.05) -> Operation:
        """An operation that waits for next to nothing."""
        reconciler = Reconciler(
            IndexStore(self.client, "cpuplan", "cpuplan"),
            EventPoster(self.client, instance="operator-0"),
            NodeKnowledge(self.client, namespace="cpuplan", agent_selector="app=agent"),
            self.metrics,
            waits=Waits(30, 15),
        )
        return Operation(
            self.client,
            reconciler,
            self.metrics,
            rhythm=Rhythm(write_interval_seconds=0.01, tick_seconds=tick_seconds, resync_seconds=resync_seconds),
            is_leading=lambda: self.is_leading,
            backoff=Backoff(0.01, 0.01),
            clock=self.clock,
            wall=lambda: CREATED_SECONDS + 1,
        )

    def has(self, content: Json) -> None:
        """The pod is in the cluster."""
        self.api.put(f"{PODS}/{content['metadata']['name']}", content)

    def indexed(self) -> set[str]:
        """The pods in the index."""
        stored = self.api.object(INDEX) or {}
        return {name for text in stored.get("data", {}).values() for name in json.loads(text)}

    def value(self, name: str) -> float:
        """A metric's value."""
        return self.metrics.registry.get_sample_value(f"cpuplan_operator_{name}") or 0.0


@pytest.fixture
def stage(api: FakeApi, client: KubeClient) -> Stage:
    """One node, no pods."""
    api.put("/api/v1/nodes/gpu-1", {"status": {}})
    return Stage(api, client)


@contextmanager
def running(operation: Operation) -> Iterator[Callable[[Callable[[], None]], object]]:
    """The operation at work in an event loop; gives a function that calls something inside that loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    work = asyncio.run_coroutine_threadsafe(operation.run(), loop)
    try:
        yield loop.call_soon_threadsafe
    finally:
        work.cancel()
        asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


def test_pods_that_are_there_at_the_start_are_indexed(stage: Stage) -> None:
    stage.has(planned("a"))
    with running(stage.operation()):
        until(lambda: stage.indexed() == {"demo/a"})


def test_only_planned_pods_are_asked_for_and_in_pages(stage: Stage) -> None:
    with running(stage.operation()):
        until(lambda: stage.api.object(INDEX) is not None)
    (listing,) = stage.api.requests_of("GET", "/api/v1/pods")
    assert (listing.query["labelSelector"], listing.query["limit"]) == ("cpuplan.dev/managed=true", "250")


def test_nothing_is_written_before_everything_is_listed(stage: Stage) -> None:
    stage.has(planned("a"))
    stage.api.put(INDEX, {"metadata": {"labels": {"cpuplan.dev/index": "cpuplan"}}, "data": {"gpu-1": "old"}})
    stage.api.fail(500, times=1, method="GET", path_part="/api/v1/pods")
    operation = stage.operation()
    with running(operation):
        until(lambda: stage.value("api_failures_total") == 1)
        assert writes(stage.api) == []
        assert not operation.is_ready
        until(lambda: operation.is_ready and stage.indexed() == {"demo/a"})


def test_what_the_watch_tells_is_written(stage: Stage) -> None:
    operation = stage.operation()
    with running(operation) as call:
        until(lambda: operation.is_ready)
        call(lambda: operation.pod_seen(planned("a"), kind="ADDED"))
        until(lambda: stage.indexed() == {"demo/a"})
        call(lambda: operation.pod_gone(planned("a")))
        until(lambda: stage.indexed() == set())


def test_a_deletion_that_the_watch_lost_is_found_by_the_next_listing(stage: Stage) -> None:
    stage.has(planned("a"))
    operation = stage.operation(resync_seconds=0.05)
    with running(operation):
        until(lambda: stage.indexed() == {"demo/a"})
        stage.api.remove(f"{PODS}/a")
        until(lambda: stage.indexed() == set())
        until(lambda: stage.value("missed_changes_total") == 1)


def test_a_listing_does_not_wait_for_the_next_tick(stage: Stage) -> None:
    with running(stage.operation(resync_seconds=0.05, tick_seconds=3600)):
        until(lambda: stage.value("listings_total") >= 3)


def test_a_quiet_cluster_is_not_written_to(stage: Stage) -> None:
    stage.has(planned("a"))
    operation = stage.operation(resync_seconds=0.05)
    with running(operation):
        until(lambda: stage.indexed() == {"demo/a"})
        until(lambda: stage.value("listings_total") >= 2)
        count = len(writes(stage.api))
        until(lambda: stage.value("listings_total") >= 5)
        assert len(writes(stage.api)) == count


def test_a_restart_after_a_kill_writes_no_index_and_no_event_anew(stage: Stage) -> None:
    stage.has(planned("a"))
    first = stage.operation()
    with running(first):
        until(lambda: first.is_ready)
    before = stage.api.object(INDEX)
    second = stage.operation()
    with running(second):
        until(lambda: second.is_ready)
    assert stage.api.object(INDEX) == before
    assert len(stage.client.list_objects("/api/v1/namespaces/demo/events").items) == 1


def test_a_pass_that_the_api_server_fails_is_tried_again(stage: Stage) -> None:
    stage.has(planned("a"))
    stage.api.fail(500, times=1, path_part="/configmaps")
    with running(stage.operation()):
        until(lambda: stage.indexed() == {"demo/a"})


def test_a_pass_that_fails_for_long_keeps_back_no_listing(stage: Stage) -> None:
    stage.api.fail(403, times=10_000, path_part="/configmaps")
    operation = stage.operation(resync_seconds=0.05)
    with running(operation):
        until(lambda: stage.value("listings_total") >= 3)
    assert stage.value("api_failures_total") >= 2
    assert not operation.is_ready


def test_a_namespace_that_takes_no_events_keeps_back_nothing_of_others(stage: Stage) -> None:
    """A quota on Events, or a webhook that refuses them."""
    stage.api.fail(403, times=10_000, path_part="/namespaces/demo/events")
    stage.has(planned("a"))
    elsewhere = planned("b")
    elsewhere["metadata"]["namespace"] = "other"
    stage.api.put("/api/v1/namespaces/other/pods/b", elsewhere)
    operation = stage.operation()
    with running(operation):
        until(lambda: operation.is_ready)
    assert [event["reason"] for event in stage.client.list_objects(f"{OTHER}/events").items] == ["PlanMade"]
    assert stage.value("events_refused_total") == 1


@pytest.mark.parametrize("code", [429, 500])
def test_each_pass_in_which_the_api_server_fails_at_an_event_is_counted_and_waited_after(
    stage: Stage, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The pods are in three namespaces, and each is tried once in 30 s; the wall clock stands still."""
    stage.api.fail(code, times=10_000, path_part="/events")
    for namespace in ("demo", "other", "third"):
        there = planned(f"in-{namespace}")
        there["metadata"]["namespace"] = namespace
        stage.api.put(f"/api/v1/namespaces/{namespace}/pods/in-{namespace}", there)
    operation = stage.operation()
    with running(operation):
        until(lambda: operation.is_ready)
    assert stage.value("api_failures_total") == stage.value("events_refused_total") == 3
    assert caplog.text.count("will be tried again in_seconds=") == 3


def test_without_the_lease_nothing_is_written_any_more(stage: Stage) -> None:
    operation = stage.operation()

    async def work() -> None:
        task = asyncio.create_task(operation.run())
        while not operation.is_ready:
            await asyncio.sleep(0.005)
        stage.is_leading = False
        count = len(writes(stage.api))
        operation.pod_seen(planned("a"), kind="ADDED")
        with pytest.raises(LeadershipLostError):
            await task
        assert len(writes(stage.api)) == count

    asyncio.run(work())


def test_a_pod_that_cannot_be_read_is_counted_and_does_not_hide_the_others(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    broken = planned("broken")
    broken["metadata"]["creationTimestamp"] = "banana"
    stage.has(broken)
    stage.has(planned("a"))
    with running(stage.operation()):
        until(lambda: stage.indexed() == {"demo/a"})
    assert stage.value("unreadable_pods_total") == 1
    assert "pod ignored: it cannot be read pod=demo/broken" in caplog.text


def test_an_operation_that_makes_no_step_is_silent(stage: Stage) -> None:
    clock = FakeClock()
    stage.clock = clock
    operation = stage.operation()
    clock.now += 400
    assert operation.silent_seconds() == 400
    with running(operation):
        until(lambda: operation.is_ready)
    assert operation.silent_seconds() == 0
