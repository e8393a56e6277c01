"""An API server with the chart's policies at work, and the accounts that the tests act as."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus

import pytest

from tests.apiserver import Answer, ApiServer, running_api_server
from tests.chart.rendering import NAMESPACE, rendered
from tests.policies.pods import MERGE, PODS

EFFECT_SECONDS = 30.0
"""Limit for installed policies to take effect; the API server looks for new ones once a second."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The server, and two tokens of the agents' account: one on each node.

    RBAC is wide open for the agents' account here, so that only the policies can refuse it anything.
    """

    server: ApiServer
    agent_of_gpu_1: str
    agent_of_gpu_2: str

    def as_kubelet(self, node: str, method: str, path: str, body: object, content_type: str) -> Answer:
        """A call of that node's kubelet."""
        headers = {"Impersonate-User": f"system:node:{node}", "Impersonate-Group": "system:nodes"}
        return self.server.call(method, path, body, headers=headers, content_type=content_type)


@pytest.fixture(scope="package")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """The server, with the chart installed and its policies in effect.

    Mutating policies fail loudly here: ignored, a failing expression would look like a pod that is left alone.
    """
    with running_api_server(tmp_path_factory.mktemp("apiserver")) as server:
        for name in ("cpuplan", "demo", "excluded", "kube-system"):
            server.namespace(name)
        _make_limited_namespace(server)
        _make_ranged_namespace(server)
        settings = (
            "policies.mutating=enabled",
            "policies.mutatingFailurePolicy=Fail",
            "injection.excludedNamespaces={excluded}",
        )
        server.kubectl("apply", "--server-side", "-f", "-", stdin=rendered(*settings))
        _wait_for_policies(server)
        yield server


@pytest.fixture(scope="package")
def setting(api_server: ApiServer) -> Setting:
    """The server with nodes gpu-1 and gpu-2, and a token of the agent of each."""
    subject = {"kind": "ServiceAccount", "name": "cpuplan-agent", "namespace": NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    api_server.ensure(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {"metadata": {"name": "wide-open"}, "roleRef": role, "subjects": [subject]},
    )
    one, two = (api_server.token("cpuplan-agent", NAMESPACE, node=node) for node in ("gpu-1", "gpu-2"))
    room = {"status": {"capacity": {"cpu": "64"}, "allocatable": {"cpu": "64"}}}
    api_server.must("PATCH", "/api/v1/nodes/gpu-1/status", room, content_type=MERGE)
    return Setting(api_server, one, two)


def _make_limited_namespace(server: ApiServer) -> None:
    """A namespace with restricted pod security and a quota on everything.

    The quota's status is written here: no controller runs that would.
    """
    server.namespace("limited", {"pod-security.kubernetes.io/enforce": "restricted"})
    hard = {
        "requests.cpu": "8", "limits.cpu": "8", "requests.memory": "16Gi", "limits.memory": "16Gi",
        "requests.nvidia.com/gpu": "1", "pods": "1",
    }  # fmt: skip
    collection = "/api/v1/namespaces/limited/resourcequotas"
    server.ensure(collection, {"metadata": {"name": "all"}, "spec": {"hard": hard}})
    status = {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}}
    server.must("PATCH", f"{collection}/all/status", status, content_type=MERGE)


def _make_ranged_namespace(server: ApiServer) -> None:
    """A namespace that gives every container limits, and refuses less than a tenth of a CPU."""
    server.namespace("ranged")
    limits = {"type": "Container", "default": {"cpu": "500m", "memory": "512Mi"}, "min": {"cpu": "100m"}}
    collection = "/api/v1/namespaces/ranged/limitranges"
    server.ensure(collection, {"metadata": {"name": "all"}, "spec": {"limits": [limits]}})


def _wait_for_policies(server: ApiServer) -> None:
    """Returns when each of the seven policies has shown itself."""
    deadline = time.monotonic() + EFFECT_SECONDS
    while not _all_in_effect(server):
        assert time.monotonic() < deadline, f"the policies had no effect after {EFFECT_SECONDS:.0f} s"
        time.sleep(0.1)


def _all_in_effect(server: ApiServer) -> bool:
    spec = {"containers": [{"name": "main", "image": "example.test/main:1"}]}
    forged = {"step_thread_core": "auto", "cpuplan.dev/plan": "{}"}
    made = server.call(
        "POST", PODS, {"metadata": {"name": "probe", "annotations": forged}, "spec": spec}, query={"dryRun": "All"}
    )
    if made.status != HTTPStatus.CREATED:
        return False
    is_mutated = (
        "initContainers" in made.body["spec"]
        and "cpuplan.dev/managed" in made.body["metadata"].get("labels", {})
        and "cpuplan.dev/plan" not in made.body["metadata"]["annotations"]
    )
    bad = {"metadata": {"name": "probe", "annotations": {"step_thread_core": "x"}}, "spec": spec}
    binding = {
        "metadata": {"name": "probe", "annotations": {"cpuplan.dev/plan": "{}"}},
        "target": {"kind": "Node", "name": "gpu-1"},
    }
    agent = {
        "Impersonate-User": f"system:serviceaccount:{NAMESPACE}:cpuplan-agent",
        "Impersonate-Group": "system:masters",
    }
    plain = {"metadata": {"name": "probe"}, "spec": spec}
    template = {"metadata": {"labels": {"app": "probe"}}, "spec": spec}
    workload = {"selector": {"matchLabels": {"app": "probe"}}, "template": template}
    misplaced = {"metadata": {"name": "probe", "annotations": {"step_thread_core": "auto"}}, "spec": workload}
    warned = server.call("POST", "/apis/apps/v1/namespaces/demo/deployments", misplaced, query={"dryRun": "All"})
    refusals = (
        server.call("POST", PODS, bad, query={"dryRun": "All"}),
        server.call("POST", f"{PODS}/probe/binding", binding, query={"dryRun": "All"}),
        server.call("POST", PODS, plain, query={"dryRun": "All"}, headers=agent),
    )
    return (
        is_mutated
        and warned.warnings != ()
        and all("ValidatingAdmissionPolicy" in refusal.message for refusal in refusals)
    )
