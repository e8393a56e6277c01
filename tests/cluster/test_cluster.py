"""The cluster itself: what the other tests of ring 2 take for granted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster import fakegpus
from tests.cluster.fixture import Cluster

NAMESPACE = "cluster-itself"


def pod(name: str, image: str, node: str, *command: str, devices: int = 0) -> dict[str, Any]:
    """A pod of one container on that node; it ends at once when it is deleted."""
    limits = {"nvidia.com/gpu": str(devices)} if devices else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": list(command),
                    "resources": {"limits": limits},
                }
            ],
        },
    }


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace that is gone afterwards."""
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    cluster.kubectl("wait", f"namespace/{NAMESPACE}", "--for=jsonpath={.status.phase}=Active")
    cluster.kubectl("wait", "-n", NAMESPACE, "--for=create", "serviceaccount/default", "--timeout=30s")
    yield NAMESPACE
    cluster.kubectl("delete", "namespace", NAMESPACE)


@pytest.fixture(scope="module")
def gpu_nodes(cluster: Cluster) -> None:
    cluster.make_gpu_nodes()


def until_ready(cluster: Cluster, *pods: str) -> None:
    cluster.kubectl(
        "wait", "-n", NAMESPACE, *(f"pod/{name}" for name in pods), "--for=condition=Ready", "--timeout=90s"
    )


# Ready says that the server's process runs, not that it listens, nor that kube-proxy has heard of it.
FETCH = """
import os, ssl, sys, time, urllib.error, urllib.request
def fetch(url, **options):
    deadline = time.monotonic() + 60
    while True:
        try:
            return urllib.request.urlopen(url, timeout=10, **options)
        except urllib.error.URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
trust = ssl.create_default_context(cafile="/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
print(fetch(f"http://{sys.argv[1]}/hostname").read().decode().strip())
print(fetch(f"https://{os.environ['KUBERNETES_SERVICE_HOST']}/version", context=trust).status)
"""


def test_a_pod_reaches_one_on_another_node_and_the_api_server_by_their_service_addresses(
    cluster: Cluster, namespace: str
) -> None:
    image, workers = cluster.image(), cluster.workers
    cluster.apply(
        pod("server", image, workers[0], "python", "-m", "http.server", "8000", "--directory", "/etc"),
        pod("client", image, workers[1], "sleep", "infinity"),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "server", "namespace": namespace},
            "spec": {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8000}]},
        },
    )
    until_ready(cluster, "server", "client")
    address = cluster.get("service", "-n", namespace, "server")["spec"]["clusterIP"]
    answers = cluster.kubectl("exec", "-n", namespace, "client", "--", "python", "-c", FETCH, address)
    assert answers.split() == ["server", "200"]


@pytest.mark.usefixtures("gpu_nodes")
def test_the_kubelet_gives_a_pod_devices_that_the_device_tree_places(cluster: Cluster, namespace: str) -> None:
    node = cluster.workers[0]
    cluster.apply(pod("gpus", cluster.image(), node, "sleep", "infinity", devices=2))
    until_ready(cluster, "gpus")
    given = cluster.kubectl("exec", "-n", namespace, "gpus", "--", "printenv", "NVIDIA_VISIBLE_DEVICES").strip()
    written = cluster.on_node(node, "sh", "-c", f"cat {fakegpus.TREE}/proc/driver/nvidia/gpus/*/information")
    known = [line.split()[-1] for line in written.splitlines() if line.startswith("GPU UUID:")]
    assert len(set(given.split(",")) & set(known)) == 2


@pytest.mark.usefixtures("gpu_nodes")
def test_the_devices_come_back_when_a_kubelet_restarts(cluster: Cluster) -> None:
    with cluster.kubelet_stopped(cluster.workers[0]):
        pass
    fakegpus.wait_for_devices(cluster.kubectl, fakegpus.DEVICES_PER_NODE)


@pytest.mark.usefixtures("gpu_nodes")
def test_a_node_that_was_rebooted_serves_pods_and_devices_again(cluster: Cluster, namespace: str) -> None:
    node = cluster.workers[1]
    cluster.restart_node(node)
    fakegpus.wait_for_devices(cluster.kubectl, fakegpus.DEVICES_PER_NODE)
    cluster.apply(pod("after", cluster.image(), node, "sleep", "infinity", devices=1))
    until_ready(cluster, "after")


def test_the_audit_log_shows_who_wrote_what(cluster: Cluster, namespace: str) -> None:
    before = cluster.audit_position()
    cluster.kubectl("create", "configmap", "-n", namespace, "seen")
    written = [
        (entry["verb"], entry["objectRef"]["name"], entry["user"]["username"])
        for entry in cluster.audit_entries(before)
        if entry.get("objectRef", {}).get("resource") == "configmaps" and entry["objectRef"]["namespace"] == namespace
    ]
    assert ("create", "seen", "kubernetes-admin") in written


def test_a_frozen_node_answers_again_afterwards(cluster: Cluster) -> None:
    with cluster.frozen(cluster.workers[0]):
        pass
    assert "Ready" in json.dumps(cluster.get("node", cluster.workers[0])["status"]["conditions"][-1])
