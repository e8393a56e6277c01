"""The operator as a process against a real API server, with the rights of the chart and no others."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from cpuplan.cli.main import main
from cpuplan.controller.eventposter import FAILED_SECONDS
from cpuplan.controller.observed import observed_pod
from cpuplan.controller.packing import node_shares
from cpuplan.kube import client
from cpuplan.kube.annotations import annotations_of
from cpuplan.model import reasons
from tests.apiserver import ApiServer, running_api_server
from tests.controller.pods import planned, pod_plan
from tests.controller.process import NAMESPACE, QUICKLY_LOST, ROOT, running_operator
from tests.waiting import until

RBAC = "/apis/rbac.authorization.k8s.io/v1"
COLLECTIONS = {
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "Role": f"{RBAC}/namespaces/{NAMESPACE}/roles",
    "RoleBinding": f"{RBAC}/namespaces/{NAMESPACE}/rolebindings",
}
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
MERGE = "application/merge-patch+json"
EVENT_SECONDS = FAILED_SECONDS + 20
"""Limit for an Event to come: a loaded API server may fail at the first try."""
AUDIT_POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"


@dataclass(frozen=True, slots=True)
class Cluster:
    """An API server with the chart's roles for the operator, and what tests do there."""

    server: ApiServer
    kubeconfig: Path
    audit_log: Path

    def pod(self, namespace: str, name: str, node: str = "gpu-1") -> None:
        """A planned pod, as the label policy leaves it."""
        self.server.namespace(namespace)
        metadata = {
            "name": name,
            "labels": {"cpuplan.dev/managed": "true"},
            "annotations": {"step_thread_core": "auto"},
        }
        spec = {"nodeName": node, "containers": [{"name": "engine", "image": "engine"}]}
        self.server.must("POST", f"/api/v1/namespaces/{namespace}/pods", {"metadata": metadata, "spec": spec})

    def plan(self, namespace: str, name: str, *, generation: int = 1, reason: str = reasons.PINNED) -> None:
        """The pod gets its plan, as an agent writes it."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        uid = self.server.must("GET", path)["metadata"]["uid"]
        texts = annotations_of(pod_plan(name, uid=uid, generation=generation, reason=reason))
        self.server.must("PATCH", path, {"metadata": {"annotations": texts}}, content_type=MERGE)

    def indexed(self, configmap: str) -> dict[str, Any]:
        """The pods of the index and what it says of them."""
        answer = self.server.call("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/{configmap}")
        data = answer.body.get("data", {}) if answer.status == 200 else {}
        return {name: entry for text in data.values() for name, entry in json.loads(text).items()}

    def events(self, namespace: str) -> list[str]:
        """The reasons of all Events of the operator, sorted."""
        path = f"/api/v1/namespaces/{namespace}/events"
        found = self.server.must("GET", path, query={"fieldSelector": "source=cpuplan-operator"})
        return sorted(event["reason"] for event in found["items"])

    def holder(self, lease: str) -> str:
        """Who holds the Lease."""
        answer = self.server.call("GET", f"{LEASES}/{lease}")
        return str(answer.body["spec"]["holderIdentity"]) if answer.status == 200 else ""

    def lease(self, name: str, *, holder: str, seconds: int) -> None:
        """A Lease that somebody holds."""
        spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds}
        self.server.must("POST", LEASES, {"metadata": {"name": name}, "spec": spec})

    def requests(self) -> list[dict[str, Any]]:
        """What the operator's account asked the API server so far."""
        account = f"system:serviceaccount:{NAMESPACE}:cpuplan-operator"
        written = self.audit_log.read_bytes()
        whole = written[: written.rfind(b"\n") + 1]  # the last line may still be on its way
        lines = [json.loads(line) for line in whole.splitlines()]
        return [line for line in lines if line["user"]["username"] == account]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with one node."""
    folder = tmp_path_factory.mktemp("operator")
    (folder / "audit.yaml").write_text(AUDIT_POLICY)
    flags = [f"--audit-policy-file={folder / 'audit.yaml'}", f"--audit-log-path={folder / 'audit.log'}"]
    with running_api_server(tmp_path_factory.mktemp("apiserver"), flags=flags) as server:
        server.namespace(NAMESPACE)
        server.node("gpu-1")
        for manifest in yaml.safe_load_all((ROOT / "manifests" / "install.yaml").read_text()):
            if manifest["kind"] in COLLECTIONS and manifest["metadata"]["name"] == "cpuplan-operator":
                server.ensure(COLLECTIONS[manifest["kind"]], manifest)
        kubeconfig = server.kubeconfig_for(server.token("cpuplan-operator", NAMESPACE))
        yield Cluster(server, kubeconfig, folder / "audit.log")


def test_pods_are_followed_from_their_plan_to_their_end_and_never_written(cluster: Cluster, tmp_path: Path) -> None:
    cluster.pod("follow", "early")
    cluster.plan("follow", "early")
    with running_operator(cluster.kubeconfig, "follow", tmp_path / "log"):
        until(lambda: "follow/early" in cluster.indexed("follow"))
        cluster.pod("follow", "late")
        cluster.plan("follow", "late")
        until(lambda: "follow/late" in cluster.indexed("follow"))
        cluster.plan("follow", "late", generation=2, reason=reasons.WOULD_PIN_ALL)
        until(lambda: cluster.indexed("follow")["follow/late"]["plan"]["generation"] == 2)
        until(lambda: "PlanChanged" in cluster.events("follow"), limit_seconds=EVENT_SECONDS)
        unlabelled = {"metadata": {"labels": {"cpuplan.dev/managed": None}}}
        cluster.server.must("PATCH", "/api/v1/namespaces/follow/pods/early", unlabelled, content_type=MERGE)
        until(lambda: "follow/early" not in cluster.indexed("follow"))
        options = {"gracePeriodSeconds": 0}
        cluster.server.must("DELETE", "/api/v1/namespaces/follow/pods/late", options)
        until(lambda: not any(name.startswith("follow/") for name in cluster.indexed("follow")))
        until(lambda: any(line["verb"] == "watch" for line in cluster.requests()))
    said = cluster.events("follow")
    assert said == ["InitContainerMissing", "InitContainerMissing", "PlanChanged", "PlanMade", "PlanMade"]
    requests = cluster.requests()
    of_all_pods = [line["requestURI"] for line in requests if line["requestURI"].startswith("/api/v1/pods")]
    assert all("labelSelector=cpuplan.dev" in address for address in of_all_pods)
    written = {line["objectRef"]["resource"] for line in requests if line["verb"] not in ("get", "list", "watch")}
    assert written == {"configmaps", "events", "leases", "selfsubjectaccessreviews"}
    assert [line["requestURI"] for line in requests if line["responseStatus"]["code"] == 403] == []


def test_kubectl_shows_the_index_with_one_pod_per_line(cluster: Cluster) -> None:
    entries = [observed_pod(planned(name)).index_entry for name in ("a", "b")]
    data = {share.node: share.text for share in node_shares("gpu-1", entries)}
    cluster.server.must("POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps", {"metadata": {"name": "x"}, "data": data})
    shown = cluster.server.kubectl("get", "configmap", "x", "-n", NAMESPACE, "-o", "yaml").stdout.splitlines()
    assert shown[1:4] == ["data:", "  gpu-1: |", "    {"]
    assert [line[:20] for line in shown[4:6]] == ['    "demo/a":{"statu', '    "demo/b":{"statu']
    assert shown[6] == "    }"


def test_a_kill_changes_nothing_and_a_restart_finds_everything_in_place(cluster: Cluster, tmp_path: Path) -> None:
    cluster.pod("killed", "llm-0")
    cluster.plan("killed", "llm-0")
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/killed"
    pod_path = "/api/v1/namespaces/killed/pods/llm-0"
    with running_operator(cluster.kubeconfig, "killed", tmp_path / "log") as process:
        until(lambda: cluster.events("killed") == ["InitContainerMissing", "PlanMade"], limit_seconds=EVENT_SECONDS)
        process.kill()
        process.wait()
    before = cluster.server.must("GET", path), cluster.server.must("GET", pod_path)
    with running_operator(cluster.kubeconfig, "killed", tmp_path / "log-2"):
        posts = [f"/api/v1/namespaces/killed/events {code}" for code in (201, 201, 409, 409)]
        until(lambda: event_posts(cluster, "killed") == posts)
    assert (cluster.server.must("GET", path), cluster.server.must("GET", pod_path)) == before
    assert cluster.events("killed") == ["InitContainerMissing", "PlanMade"]


def event_posts(cluster: Cluster, namespace: str) -> list[str]:
    """Address and answer of every Event that the operator posted, sorted."""
    posts = [line for line in cluster.requests() if line["requestURI"] == f"/api/v1/namespaces/{namespace}/events"]
    return sorted(
        f"{line['requestURI']} {line['responseStatus']['code']}" for line in posts if line["verb"] == "create"
    )


def test_a_killed_leader_is_followed_and_a_leader_that_is_told_to_end_gives_the_lease_back(
    cluster: Cluster, tmp_path: Path
) -> None:
    names = ("operator-0", "operator-1")
    cluster.pod("takeover", "before")
    cluster.plan("takeover", "before")
    with ExitStack() as stack:
        processes = {
            name: stack.enter_context(
                running_operator(cluster.kubeconfig, "takeover", tmp_path / name, *QUICKLY_LOST, identity=name)
            )
            for name in names
        }
        until(lambda: cluster.events("takeover") == ["InitContainerMissing", "PlanMade"], limit_seconds=EVENT_SECONDS)
        killed = cluster.holder("takeover")
        (follower,) = set(names) - {killed}
        until(lambda: f"standing by lease=cpuplan/takeover identity={follower}" in (tmp_path / follower).read_text())
        processes[killed].kill()
        processes[killed].wait()
        cluster.pod("takeover", "after")
        cluster.plan("takeover", "after")
        until(lambda: cluster.indexed("takeover").keys() >= {"takeover/before", "takeover/after"})
        assert cluster.holder("takeover") == follower
        until(lambda: len(cluster.events("takeover")) == 4, limit_seconds=EVENT_SECONDS)
        processes[follower].terminate()
        assert processes[follower].wait(20) == 0
    assert cluster.holder("takeover") == ""
    assert cluster.events("takeover") == ["InitContainerMissing", "InitContainerMissing", "PlanMade", "PlanMade"]


def test_a_process_that_stands_by_ends_at_once_when_told(cluster: Cluster, tmp_path: Path) -> None:
    cluster.lease("standby", holder="operator-1", seconds=60)
    with running_operator(cluster.kubeconfig, "standby", tmp_path / "log") as process:
        until(lambda: "holder=operator-1" in (tmp_path / "log").read_text())
        process.terminate()
        assert process.wait(20) == 0
    assert cluster.holder("standby") == "operator-1"


def test_the_loss_of_the_lease_ends_the_process(cluster: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "log"
    taken = {"spec": {"holderIdentity": "operator-1", "leaseDurationSeconds": 60}}
    with running_operator(cluster.kubeconfig, "lost", log, *QUICKLY_LOST) as process:
        until(lambda: cluster.holder("lost") == "operator-0")
        cluster.server.must("PATCH", f"{LEASES}/lost", taken, content_type=MERGE)
        assert process.wait(20) == 1
    assert "lease cpuplan/lost is held by operator-1 now" in log.read_text()
    assert cluster.holder("lost") == "operator-1"


def test_an_account_without_rights_ends_the_process_with_one_sentence(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], restored_logging: None
) -> None:
    kubeconfig = cluster.server.kubeconfig_for(cluster.server.token("nobody", NAMESPACE))
    assert main(["operator", "--namespace", NAMESPACE, "--kubeconfig", str(kubeconfig)]) == 2
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert "the operator's account may not list pods in all namespaces; watch pods in all namespaces;" in sentence
    assert sentence.endswith(": bind it to the roles of the chart")


def test_a_missing_kubeconfig_ends_the_process_with_one_sentence(
    capsys: pytest.CaptureFixture[str], restored_logging: None
) -> None:
    assert main(["operator", "--namespace", NAMESPACE, "--kubeconfig", "/nowhere"]) == 2
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert sentence.endswith(" kubeconfig /nowhere does not exist; give an existing file")


def test_an_api_server_that_does_not_answer_ends_the_process_with_one_sentence(
    kubeconfig: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, restored_logging: None
) -> None:
    monkeypatch.setattr(client, "default_retries", lambda: urllib3.Retry(total=0))
    nobody = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:9", kubeconfig.read_text())
    kubeconfig.write_text(nobody)
    assert main(["operator", "--namespace", NAMESPACE, "--kubeconfig", str(kubeconfig)]) == 1
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert sentence.endswith("Connection refused; is the API server up, and may this pod reach it?")
