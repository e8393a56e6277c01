"""Faults: killed processes, restarted kubelets, a quiet cluster."""

from __future__ import annotations

import json
from typing import Any

from tests.cluster.fixture import Cluster
from tests.endtoend.conftest import PLAN_KEY, Stage, until

RELEASE = "cpuplan"
QUIET_RENEWALS = 7
"""The operator renews its Lease every 10 s: after this many renewals more than a minute has gone by."""

HOSTFLAG_KEY = "cpuplan.dev/hostflag"
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


def pod_of(cluster: Cluster, component: str, node: str) -> dict[str, Any]:
    """The component's pod on the node."""
    selectors = (f"--selector=app.kubernetes.io/component={component}", f"--field-selector=spec.nodeName={node}")
    found: dict[str, Any] = cluster.get("pods", "-n", RELEASE, *selectors)["items"][0]
    return found


def kill_main_process(cluster: Cluster, component: str, node: str) -> None:
    """SIGKILL to the component's process on the node, from the node itself."""
    pods = cluster.get(
        "pods",
        "-n",
        RELEASE,
        f"--selector=app.kubernetes.io/component={component}",
        f"--field-selector=spec.nodeName={node}",
    )["items"]
    identity = pods[0]["status"]["containerStatuses"][0]["containerID"].rpartition("//")[2]
    info = json.loads(cluster.on_node(node, "crictl", "inspect", identity))
    cluster.on_node(node, "kill", "-9", str(info["info"]["pid"]))


def restart_count(cluster: Cluster, component: str, node: str) -> int:
    pods = cluster.get(
        "pods",
        "-n",
        RELEASE,
        f"--selector=app.kubernetes.io/component={component}",
        f"--field-selector=spec.nodeName={node}",
    )["items"]
    return sum(int(status["restartCount"]) for status in pods[0]["status"]["containerStatuses"])


def operator_node(cluster: Cluster) -> str:
    pods = cluster.get("pods", "-n", RELEASE, "--selector=app.kubernetes.io/component=operator")["items"]
    return str(pods[0]["spec"]["nodeName"])


def test_a_killed_agent_changes_nothing_on_its_pods_and_comes_back_to_the_same_state(stage: Stage) -> None:
    stage.make_pod("llm", annotations={"step_thread_core": "auto"})
    stage.plan("llm")
    before = stage.annotations("llm")
    node = stage.pod("llm")["spec"]["nodeName"]
    restarts = restart_count(stage.cluster, "agent", node)
    kill_main_process(stage.cluster, "agent", node)
    until(lambda: restart_count(stage.cluster, "agent", node) > restarts, "the agent runs again")
    stage.cluster.kubectl("rollout", "status", "-n", RELEASE, "daemonset/cpuplan-agent", "--timeout=90s")
    stage.make_pod("next", annotations={"step_thread_core": "auto"})
    stage.plan("next")
    assert stage.annotations("llm")[PLAN_KEY] == before[PLAN_KEY]


def test_a_killed_operator_changes_nothing_and_the_index_stays_as_it_was(stage: Stage) -> None:
    stage.make_pod("llm", annotations={"step_thread_core": "auto"})
    node = stage.plan("llm").node

    def entry() -> Any:
        data = stage.cluster.get("configmap", "-n", RELEASE, "cpuplan").get("data", {})
        return json.loads(data.get(node, "{}")).get(f"{stage.namespace}/llm")

    before = until(entry, "the index has the pod")
    until(lambda: HOSTFLAG_KEY in stage.annotations("llm"), "the self-test's verdict is there")
    annotations = stage.annotations("llm")
    place = operator_node(stage.cluster)
    restarts = restart_count(stage.cluster, "operator", place)
    kill_main_process(stage.cluster, "operator", place)
    until(lambda: restart_count(stage.cluster, "operator", place) > restarts, "the operator runs again")
    stage.cluster.kubectl("rollout", "status", "-n", RELEASE, "deployment/cpuplan-operator", "--timeout=120s")
    stage.make_pod("next", annotations={"step_thread_core": "auto"})
    assert stage.plan("next")
    assert entry() == before
    assert stage.annotations("llm") == annotations


def test_a_restarted_kubelet_moves_no_plan_and_ends_no_pod_while_devices_are_away(stage: Stage) -> None:
    stage.cluster.make_gpu_nodes(reregister_after_seconds=10)
    try:
        stage.make_pod("llm", annotations={"step_thread_core": "auto"})
        stage.until_running("llm")
        before = stage.plan("llm")
        node = stage.pod("llm")["spec"]["nodeName"]
        with stage.cluster.kubelet_stopped(node):
            pass
        stage.cluster.make_gpu_nodes()
        pod = stage.pod("llm")
        assert pod["status"]["phase"] == "Running"
        assert [status["restartCount"] for status in pod["status"]["containerStatuses"]] == [0]
        assert stage.plan("llm") == before
    finally:
        stage.cluster.make_gpu_nodes()


def test_a_quiet_minute_has_no_write_of_ours_but_the_lease(stage: Stage) -> None:
    stage.make_pod("llm", annotations={"step_thread_core": "auto"})
    stage.until_running("llm")
    stage.plan("llm")
    until(lambda: HOSTFLAG_KEY in stage.annotations("llm"), "the self-test's verdict is there")
    settled = stage.cluster.audit_position()
    until(lambda: len(lease_renewals(stage.cluster, settled)) >= 1, "the Lease is renewed")
    start = stage.cluster.audit_position()
    until(lambda: len(lease_renewals(stage.cluster, start)) >= QUIET_RENEWALS, "a minute goes by", limit_seconds=150)
    writes = [
        f"{entry['verb']} {entry['requestURI']}"
        for entry in our_writes(stage.cluster, start)
        if entry["objectRef"]["resource"] != "leases"
    ]
    assert writes == []


def our_writes(cluster: Cluster, since: int) -> list[dict[str, Any]]:
    return [
        entry
        for entry in cluster.audit_entries(since)
        if entry["user"]["username"].startswith("system:serviceaccount:cpuplan:") and entry["verb"] in WRITES
    ]


def lease_renewals(cluster: Cluster, since: int) -> list[dict[str, Any]]:
    return [entry for entry in our_writes(cluster, since) if entry["objectRef"]["resource"] == "leases"]
