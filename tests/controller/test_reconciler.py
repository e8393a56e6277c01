"""One pass over all pods: what is in the index, what is said, and that one failing part does not stop the others."""

import json

import pytest

from cpuplan.controller.eventposter import EventPoster
from cpuplan.controller.indexstore import IndexStore
from cpuplan.controller.metrics import OperatorMetrics
from cpuplan.controller.nodes import NodeKnowledge
from cpuplan.controller.observed import observed_pod
from cpuplan.controller.reconciler import ANNOUNCED_SECONDS, OLD_PLAN_SECONDS, Reconciler, Waits
from cpuplan.kube.client import KubeClient
from cpuplan.kube.errors import KubeError
from cpuplan.model import reasons
from cpuplan.model.podplan import PodPlan
from tests.controller.conftest import writes
from tests.controller.pods import BOOT, CREATED, CREATED_SECONDS, Json, field_owner, planned, pod, pod_plan
from tests.fakeapi import FakeApi

NOW = CREATED_SECONDS + 100
INDEX = "/api/v1/namespaces/cpuplan/configmaps/cpuplan"
EVENTS = "/api/v1/namespaces/demo/events"


@pytest.fixture
def metrics() -> OperatorMetrics:
    """Metrics of their own."""
    return OperatorMetrics()


@pytest.fixture
def reconciler(api: FakeApi, client: KubeClient, metrics: OperatorMetrics) -> Reconciler:
    """A reconciler of a cluster with one node."""
    api.put("/api/v1/nodes/gpu-1", {"status": {"nodeInfo": {"bootID": BOOT}}})
    return Reconciler(
        IndexStore(client, "cpuplan", "cpuplan"),
        EventPoster(client, instance="operator-0"),
        NodeKnowledge(client, namespace="cpuplan", agent_selector="app=agent"),
        metrics,
        waits=Waits(30, 15),
    )


def run(reconciler: Reconciler, *pods: Json, now: float = NOW) -> bool:
    """One pass over the pods."""
    return reconciler.reconcile([observed_pod(content) for content in pods], now)


def indexed(api: FakeApi) -> dict[str, list[str]]:
    """The pods of each node in the index."""
    stored = api.object(INDEX)
    assert stored is not None
    return {node: sorted(json.loads(text)) for node, text in stored.get("data", {}).items()}


def said(client: KubeClient) -> list[tuple[str, str]]:
    """Reason and text of all Events."""
    return sorted((event["reason"], event["message"]) for event in client.list_objects(EVENTS).items)


def value(metrics: OperatorMetrics, name: str, **labels: str) -> float | None:
    """A metric's value."""
    return metrics.registry.get_sample_value(f"cpuplan_operator_{name}", labels)


def test_plans_are_indexed_by_node_and_pod(api: FakeApi, reconciler: Reconciler) -> None:
    run(reconciler, planned("b"), planned("a"), pod("waits"))
    assert indexed(api) == {"gpu-1": ["demo/a", "demo/b"]}


def test_pods_that_hold_no_cpus_any_more_leave_the_index(api: FakeApi, reconciler: Reconciler) -> None:
    run(
        reconciler,
        pod("ended", plan=pod_plan("ended"), status={"phase": "Failed"}),
        pod("node-is-dead", node="gpu-9", plan=pod_plan("node-is-dead")),
        pod("kubelet-is-dead", plan=pod_plan("kubelet-is-dead"), metadata={"deletionTimestamp": CREATED}),
        planned("alive"),
    )
    assert indexed(api) == {"gpu-1": ["demo/alive"]}


def test_a_pod_that_is_ending_in_time_stays_in_the_index(api: FakeApi, reconciler: Reconciler) -> None:
    run(reconciler, pod("a", plan=pod_plan("a"), metadata={"deletionTimestamp": CREATED}), now=CREATED_SECONDS + 59)
    assert indexed(api) == {"gpu-1": ["demo/a"]}


def test_a_second_pass_over_the_same_pods_writes_nothing(api: FakeApi, reconciler: Reconciler) -> None:
    pods = planned("a"), pod("waits")
    run(reconciler, *pods)
    count = len(writes(api))
    run(reconciler, *pods, now=NOW + 600)
    assert len(writes(api)) == count


def test_plans_and_findings_become_events(client: KubeClient, reconciler: Reconciler) -> None:
    run(reconciler, planned("a"), pod("waits"))
    assert said(client) == [
        (
            "NoPlan",
            "no plan 30 s after the pod was scheduled or annotated: no cpuplan agent pod runs on node gpu-1; "
            "let the agent's DaemonSet select the node",
        ),
        ("PlanMade", "plan made (Pinned): one core per worker"),
    ]


def test_agents_are_not_asked_for_while_nobody_waits_in_vain(api: FakeApi, reconciler: Reconciler) -> None:
    run(reconciler, planned("a"), pod("waits"), now=CREATED_SECONDS + 29)
    assert api.requests_of("GET", "/pods") == []


def test_an_old_plan_is_not_announced_by_a_process_that_starts(client: KubeClient, reconciler: Reconciler) -> None:
    owners = [field_owner("agent", "cpuplan.dev/status", CREATED)]
    content = pod("a", plan=pod_plan("a"), managed_fields=owners)
    later = CREATED_SECONDS + OLD_PLAN_SECONDS
    reconciler.adopt([observed_pod(content)], later)
    run(reconciler, content, now=later)
    assert said(client) == []


def test_a_young_plan_is_announced_by_a_process_that_starts(client: KubeClient, reconciler: Reconciler) -> None:
    owners = [field_owner("agent", "cpuplan.dev/status", CREATED)]
    content = pod("a", plan=pod_plan("a"), managed_fields=owners)
    reconciler.adopt([observed_pod(content)], NOW)
    run(reconciler, content)
    assert [reason for reason, _ in said(client)] == ["PlanMade"]


def restarted(client: KubeClient, *pods: Json, now: float) -> None:
    """A new process finds these pods, and makes its first pass."""
    reconciler = Reconciler(
        IndexStore(client, "cpuplan", "cpuplan"),
        EventPoster(client, instance="operator-0"),
        NodeKnowledge(client, namespace="cpuplan", agent_selector="app=agent"),
        OperatorMetrics(),
        waits=Waits(30, 15),
    )
    reconciler.adopt([observed_pod(content) for content in pods], now)
    run(reconciler, *pods, now=now)


def written_at_creation(plan: PodPlan) -> Json:
    """The pod a, whose agent wrote this plan last when the pod was created."""
    return pod("a", plan=plan, managed_fields=[field_owner("agent", "cpuplan.dev/status", CREATED)])


def test_a_plan_that_the_index_tells_is_not_announced_again_after_its_event_expired(
    api: FakeApi, client: KubeClient, reconciler: Reconciler
) -> None:
    """A neighbour has moved its pools a while ago, so its annotations look young."""
    run(reconciler, planned("a"))
    expire_events(api, client)
    restarted(client, written_at_creation(pod_plan("a", generation=2)), now=CREATED_SECONDS + ANNOUNCED_SECONDS)
    assert said(client) == []


def test_a_plan_that_was_perhaps_not_announced_before_a_kill_is_announced_now(
    api: FakeApi, client: KubeClient, reconciler: Reconciler
) -> None:
    run(reconciler, planned("a"))
    expire_events(api, client)
    restarted(client, written_at_creation(pod_plan("a")), now=CREATED_SECONDS + ANNOUNCED_SECONDS - 1)
    assert [reason for reason, _ in said(client)] == ["PlanMade"]


def test_a_plan_that_changed_while_no_operator_ran_is_told_as_changed(
    client: KubeClient, reconciler: Reconciler
) -> None:
    run(reconciler, planned("a"))
    changed = written_at_creation(pod_plan("a", generation=2, reason=reasons.WOULD_PIN_ALL, why="too small"))
    restarted(client, changed, now=CREATED_SECONDS + OLD_PLAN_SECONDS)
    assert tuple(reason for reason, _ in said(client)) == ("PlanChanged", "PlanMade")
    assert said(client)[0][1].startswith("plan changed (NotPinned; status Pinned → NotPinned; ")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "[" * 100_000, '{"demo/a": 3}', '{"demo/a": {"status": "Pinned", "why": "", "plan": {}}}'],
)
def test_an_index_that_cannot_be_read_leaves_the_time_stamps(
    api: FakeApi, client: KubeClient, reconciler: Reconciler, text: str
) -> None:
    api.put(INDEX, {"metadata": {"labels": {"cpuplan.dev/index": "cpuplan"}}, "data": {"gpu-1": text}})
    restarted(client, written_at_creation(pod_plan("a")), now=CREATED_SECONDS + OLD_PLAN_SECONDS)
    assert said(client) == []


def test_an_index_that_is_not_answered_for_leaves_the_time_stamps(
    api: FakeApi, client: KubeClient, reconciler: Reconciler
) -> None:
    api.fail(500, path_part="/configmaps")
    restarted(client, written_at_creation(pod_plan("a")), now=CREATED_SECONDS + OLD_PLAN_SECONDS)
    assert said(client) == []
    assert indexed(api) == {"gpu-1": ["demo/a"]}


def expire_events(api: FakeApi, client: KubeClient) -> None:
    """The API server has dropped all Events."""
    for event in client.list_objects(EVENTS).items:
        api.remove(f"{EVENTS}/{event['metadata']['name']}")


def test_a_neighbour_changes_no_more_than_where_pools_float_and_is_not_announced(
    api: FakeApi, client: KubeClient, reconciler: Reconciler
) -> None:
    run(reconciler, planned("a"))
    count = len(api.requests_of("POST", EVENTS))
    run(reconciler, planned("a", generation=2), now=NOW + 60)
    assert len(api.requests_of("POST", EVENTS)) == count
    assert [reason for reason, _ in said(client)] == ["PlanMade"]


def test_a_plan_that_comes_back_is_told_in_the_event_of_its_first_time(
    client: KubeClient, reconciler: Reconciler
) -> None:
    other = pod("a", plan=pod_plan("a", reason=reasons.WOULD_PIN_ALL, generation=2, why="too small"))
    run(reconciler, planned("a"))
    run(reconciler, other, now=NOW + 60)
    run(reconciler, planned("a", generation=3), now=NOW + 120)
    (back, there) = said(client)
    assert back[1].startswith("plan changed (NotPinned; status Pinned → NotPinned; ")
    assert there[1].startswith("plan changed (Pinned; status NotPinned → Pinned; ")


def test_events_are_posted_although_the_index_cannot_be_written(
    api: FakeApi, client: KubeClient, reconciler: Reconciler
) -> None:
    api.fail(500, times=100, path_part="/configmaps")
    with pytest.raises(KubeError, match="configmaps"):
        run(reconciler, planned("a"))
    assert [reason for reason, _ in said(client)] == ["PlanMade"]


def test_the_index_is_written_although_events_cannot_be_posted(
    api: FakeApi, metrics: OperatorMetrics, reconciler: Reconciler
) -> None:
    api.fail(500, times=100, path_part="/events")
    with pytest.raises(KubeError, match="/events"):
        run(reconciler, planned("a"))
    assert indexed(api) == {"gpu-1": ["demo/a"]}
    assert value(metrics, "events_refused_total") == 1
    assert value(metrics, "pods", status="Pinned") == 1


def test_an_event_that_is_refused_is_no_failure_of_the_pass(api: FakeApi, reconciler: Reconciler) -> None:
    api.fail(403, times=100, path_part="/events")
    assert not run(reconciler, planned("a"))


def test_a_refresh_makes_the_next_pass_repair_the_index(api: FakeApi, reconciler: Reconciler) -> None:
    run(reconciler, planned("a"))
    api.patch(INDEX, {"data": {"foreign": "x"}})
    run(reconciler, planned("a"))
    assert "foreign" in (api.object(INDEX) or {})["data"]
    reconciler.refresh()
    run(reconciler, planned("a"))
    assert indexed(api) == {"gpu-1": ["demo/a"]}


def test_metrics_tell_what_was_found_and_written(metrics: OperatorMetrics, reconciler: Reconciler) -> None:
    run(reconciler, planned("a"), pod("waits"))
    assert value(metrics, "pods", status="Pinned") == 1
    assert value(metrics, "pods", status="Waiting") == 1
    assert value(metrics, "findings", kind="NoPlan") == 1
    assert value(metrics, "findings", kind="StalePlan") == 0
    assert value(metrics, "index_nodes") == 1
    assert value(metrics, "index_writes_total", verb="create") == 1
    assert value(metrics, "events_posted_total", reason="PlanMade") == 1
    assert value(metrics, "events_refused_total") == 0
