"""The chart on a real cluster: what only real kubelets and controllers show."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.fixture import Cluster

NAMESPACE = "chart-test"
SECONDS = 90.0
"""Limit for anything a test waits for."""

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, with the chart installed and a namespace with restricted pod security."""
    cluster.install_chart()
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"{NAMESPACE}-open"}},
    )
    yield cluster
    cluster.kubectl("delete", "namespace", NAMESPACE, f"{NAMESPACE}-open", "--wait=false")


def checked_policy(cluster: Cluster, name: str) -> dict[str, Any]:
    """A validating policy, once the API server's type check has looked at its present form."""
    deadline = time.monotonic() + SECONDS
    while True:
        policy = cluster.get("validatingadmissionpolicy", name)
        if policy.get("status", {}).get("observedGeneration") == policy["metadata"]["generation"]:
            return policy
        assert time.monotonic() < deadline, f"{name} was not checked within {SECONDS:.0f} s"
        time.sleep(0.5)


def image_of(cluster: Cluster) -> str:
    """The product image that the chart was installed with: every node has it."""
    agent = cluster.get("daemonset", "cpuplan-agent", "-n", "cpuplan")
    return str(agent["spec"]["template"]["spec"]["containers"][0]["image"])


def pod(name: str, namespace: str, image: str, **spec: Any) -> dict[str, Any]:
    """A pod whose container fails unless its plan is there when it starts."""
    container = {
        "name": "engine",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", 'test -s /etc/cpuplan/plan && test -n "$CPUPLAN_CONTAINER" && exec sleep 3600'],
        "securityContext": RESTRICTED if namespace == NAMESPACE else {},
        "resources": spec.pop("resources", {}),
    }
    metadata = {"name": name, "namespace": namespace, "annotations": {"step_thread_core": "auto"}}
    spec = {"terminationGracePeriodSeconds": 0, "restartPolicy": "Never", "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("name", "namespace", "spec"),
    [
        ("restricted", NAMESPACE, {}),
        ("guaranteed", NAMESPACE, {"resources": {"limits": {"cpu": "100m", "memory": "128Mi"}}}),
        ("own-user", NAMESPACE, {"securityContext": {"runAsUser": 1000, "fsGroup": 2000}}),
        ("root", f"{NAMESPACE}-open", {"securityContext": {"runAsUser": 0}}),
    ],
)
def test_a_pod_has_its_plan_when_its_container_starts(
    installed: Cluster, name: str, namespace: str, spec: dict[str, Any]
) -> None:
    installed.apply(pod(name, namespace, image_of(installed), **spec))
    installed.kubectl("wait", "pod", name, "-n", namespace, "--for=condition=Ready", f"--timeout={SECONDS:.0f}s")
    status = installed.get("pod", name, "-n", namespace)["status"]
    (verdict,) = status["initContainerStatuses"]
    assert verdict["state"]["terminated"]["exitCode"] == 0
    assert '"podUID"' in verdict["state"]["terminated"]["message"]


def test_a_static_pod_s_mirror_is_labelled_planned_and_left_alone(installed: Cluster) -> None:
    node = installed.workers[0]
    manifest = pod("static", f"{NAMESPACE}-open", image_of(installed), restartPolicy="Always")
    manifest["metadata"]["annotations"]["cpuplan.dev/plan"] = "forged"
    manifest["spec"]["containers"][0]["command"] = ["sleep", "3600"]
    folder = "/etc/kubernetes/manifests"
    script = f"mkdir -p {folder} && printf %s '{json.dumps(manifest)}' > {folder}/cpuplan-static.json"
    installed.on_node(node, "sh", "-c", script)
    try:
        installed.kubectl(
            "wait", "pod", f"static-{node}", "-n", f"{NAMESPACE}-open", "--for=create", f"--timeout={SECONDS:.0f}s"
        )
        installed.kubectl(
            "wait",
            "pod",
            f"static-{node}",
            "-n",
            f"{NAMESPACE}-open",
            "--for=condition=Ready",
            f"--timeout={SECONDS:.0f}s",
        )
        mirror = installed.get("pod", f"static-{node}", "-n", f"{NAMESPACE}-open")
    finally:
        installed.on_node(node, "rm", f"{folder}/cpuplan-static.json")
    assert mirror["metadata"]["labels"] == {"cpuplan.dev/managed": "true"}
    assert mirror["metadata"]["annotations"].get("cpuplan.dev/plan") != "forged"
    assert "initContainers" not in mirror["spec"]


@pytest.mark.parametrize("name", ["cpuplan-fence", "cpuplan-hands-off", "cpuplan-values"])
def test_the_api_server_s_type_check_finds_nothing_to_warn_of(installed: Cluster, name: str) -> None:
    assert "expressionWarnings" not in checked_policy(installed, name)["status"].get("typeChecking", {})


def test_the_agents_requests_have_a_queue_of_their_own(installed: Cluster) -> None:
    metrics = installed.kubectl("get", "--raw", "/metrics")
    dispatched = 'apiserver_flowcontrol_dispatched_requests_total{flow_schema="cpuplan-agent"'
    assert any(line.startswith(dispatched) for line in metrics.splitlines())


def test_the_agent_s_two_folders_of_the_node_are_mounted_read_only(installed: Cluster) -> None:
    """Mounts below /host/cgroup (cgroup v1) are read-only where the runtime can make them so."""
    agent = installed.get("pods", "-n", "cpuplan", "-l", "app.kubernetes.io/component=agent")["items"][0]
    mounts = installed.kubectl("exec", "-n", "cpuplan", agent["metadata"]["name"], "--", "cat", "/proc/mounts")
    options = {line.split()[1]: line.split()[3].split(",") for line in mounts.splitlines()}
    assert "ro" in options["/host/cgroup"]
    assert "ro" in options["/var/lib/kubelet/pod-resources"]
    assert "ro" in options["/"]
