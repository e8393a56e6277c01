"""The agents' fence: what a stolen agent token can do to pods, when RBAC allows it everything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import pytest

from cpuplan.kube.annotations import annotations_of, next_plan
from tests.apiserver import Answer
from tests.chart.rendering import NAMESPACE
from tests.controller.pods import container_plan, pod_plan
from tests.policies.conftest import Setting
from tests.policies.pods import MERGE, PODS, annotated, make_pod

JSON = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
STRATEGIC = "application/strategic-merge-patch+json"

PLAN = {"cpuplan.dev/status": "Pinned", "cpuplan.dev/plan": "{}"}


@pytest.fixture
def pod(setting: Setting) -> Iterator[str]:
    """The path of a pod of node gpu-1 with an annotation, a label and a finalizer of others."""
    path = make_pod(
        setting.server,
        annotations={"step_thread_core": "auto", "note": "theirs"},
        labels={"app": "llm"},
        finalizers=["example.test/hold"],
    )
    yield path
    setting.server.must("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)


def patch(setting: Setting, path: str, body: object, *, kind: str = MERGE, token: str | None = None) -> Answer:
    """The answer to a patch by the agent of gpu-1."""
    return setting.server.call("PATCH", path, body, token=token or setting.agent_of_gpu_1, content_type=kind)


def refused(answer: Answer, *words: str) -> None:
    """The policy (not RBAC, not validation) refused it, and the text has these words."""
    assert answer.status == HTTPStatus.FORBIDDEN, answer.body
    assert "ValidatingAdmissionPolicy 'cpuplan-fence'" in answer.message
    assert all(word in answer.message for word in words), answer.message


def test_an_agent_publishes_a_plan_on_a_pod_of_its_node(setting: Setting, pod: str) -> None:
    answer = patch(setting, pod, annotated(PLAN))
    assert answer.status == HTTPStatus.OK, answer.message
    assert answer.body["metadata"]["annotations"] == {"step_thread_core": "auto", "note": "theirs", **PLAN}


def test_an_agent_changes_and_removes_what_agents_wrote(setting: Setting, pod: str) -> None:
    assert patch(setting, pod, annotated(PLAN)).status == HTTPStatus.OK
    assert patch(setting, pod, annotated({"cpuplan.dev/plan": "{ }"})).status == HTTPStatus.OK
    answer = patch(setting, pod, annotated({"cpuplan.dev/plan": None, "cpuplan.dev/status": None}))
    assert answer.body["metadata"]["annotations"] == {"step_thread_core": "auto", "note": "theirs"}


def test_removing_the_last_annotation_takes_the_label_with_it(setting: Setting) -> None:
    path = make_pod(setting.server)
    assert patch(setting, path, annotated(PLAN)).body["metadata"]["labels"] == {"cpuplan.dev/managed": "true"}
    answer = patch(setting, path, annotated(dict.fromkeys(PLAN)))
    assert not answer.body["metadata"].get("labels")


def test_an_agent_may_ask_for_the_label_that_the_annotations_deserve(setting: Setting) -> None:
    path = make_pod(setting.server)
    body = {"metadata": {"annotations": PLAN, "labels": {"cpuplan.dev/managed": "true"}}}
    assert patch(setting, path, body).status == HTTPStatus.OK


def test_server_side_apply_by_an_agent_is_judged_by_what_it_changes(setting: Setting, pod: str) -> None:
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod.rpartition("/")[2], "annotations": PLAN}}
    answer = setting.server.call(
        "PATCH", pod, body, token=setting.agent_of_gpu_1, content_type=APPLY, query={"fieldManager": "agent"}
    )
    assert answer.status == HTTPStatus.OK, answer.message


def test_a_pod_of_another_node_is_out_of_reach(setting: Setting, pod: str) -> None:
    answer = patch(setting, pod, annotated(PLAN), token=setting.agent_of_gpu_2)
    refused(answer, "the agent of node gpu-2 may not change pod demo/pod-", "of node gpu-1", "its own node only")


def test_a_pod_without_a_node_is_out_of_reach(setting: Setting) -> None:
    path = make_pod(setting.server, node=None)
    refused(patch(setting, path, annotated(PLAN)), "which is on no node yet")


def test_a_token_that_names_no_node_changes_nothing(setting: Setting, pod: str) -> None:
    token = setting.server.token("cpuplan-agent", NAMESPACE)
    refused(patch(setting, pod, annotated(PLAN), token=token), "the agent's token names no node")


def test_the_token_of_an_agent_s_own_pod_names_that_pod_s_node(setting: Setting, pod: str) -> None:
    """As the kubelet makes them: bound to a pod, and through it to the pod's node."""
    spec = {"serviceAccountName": "cpuplan-agent", "nodeName": "gpu-1", "containers": [{"name": "a", "image": "a"}]}
    made = setting.server.must("POST", "/api/v1/namespaces/cpuplan/pods", {"metadata": {"name": "agent"}, "spec": spec})
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "agent", "uid": made["metadata"]["uid"]}
    path = "/api/v1/namespaces/cpuplan/serviceaccounts/cpuplan-agent/token"
    token = setting.server.must("POST", path, {"spec": {"boundObjectRef": bound}})["status"]["token"]
    assert patch(setting, pod, annotated(PLAN), token=token).status == HTTPStatus.OK
    elsewhere = make_pod(setting.server, node="gpu-2")
    refused(patch(setting, elsewhere, annotated(PLAN), token=token), "the agent of node gpu-1 may not change pod")


def test_a_token_that_names_no_node_does_not_reach_pods_without_one(setting: Setting) -> None:
    path = make_pod(setting.server, node=None)
    token = setting.server.token("cpuplan-agent", NAMESPACE)
    refused(patch(setting, path, annotated(PLAN), token=token), "the agent's token names no node")


@pytest.mark.parametrize(
    "key", ["step_thread_core", "cpuplan.dev/workers", "cpuplan.dev/container", "cpuplan.dev/selftest", "note", "new"]
)
def test_annotations_of_others_are_not_the_agent_s_to_set(setting: Setting, pod: str, key: str) -> None:
    value = {"step_thread_core": "4", "cpuplan.dev/container": "engine", "cpuplan.dev/selftest": "skip"}.get(key, "0")
    refused(patch(setting, pod, annotated({key: value})), f"annotations not the agent's to change: {key};")


@pytest.mark.parametrize("key", ["step_thread_core", "note"])
def test_annotations_of_others_are_not_the_agent_s_to_remove(setting: Setting, pod: str, key: str) -> None:
    refused(patch(setting, pod, annotated({key: None})), f"annotations not the agent's to change: {key};")


@pytest.mark.parametrize(
    "annotations",
    [
        {"cpuplan.dev/plan": "x" * 65537},
        {"cpuplan.dev/plan": "x" * 32769, "cpuplan.dev/why": "x" * 32768},
        {f"cpuplan.dev/key-{number}": "x" for number in range(17)},
    ],
    ids=["one is too long", "together too long", "too many"],
)
def test_an_agent_does_not_use_up_the_room_of_others(setting: Setting, pod: str, annotations: dict[str, str]) -> None:
    answer = patch(setting, pod, annotated(annotations))
    refused(answer, "at most 16 annotations, of at most 65536 characters together")


def test_the_largest_annotation_fits(setting: Setting, pod: str) -> None:
    assert patch(setting, pod, annotated({"cpuplan.dev/plan": "x" * 65536})).status == HTTPStatus.OK


def test_the_plan_of_a_pod_with_sixteen_gpu_containers_fits(setting: Setting, pod: str) -> None:
    """Shortened as far as it goes, it is still larger than one of a single container ever gets."""
    engine = container_plan(why="one core per worker; " * 20)
    containers = tuple((f"engine-with-a-long-name-{number}", engine) for number in range(16))
    texts = annotations_of(next_plan(None, replace(pod_plan("a"), containers=containers)))
    assert len(texts["cpuplan.dev/plan"]) > 4096
    answer = patch(setting, pod, annotated(texts))
    assert answer.status == HTTPStatus.OK, answer.message


@pytest.mark.parametrize("labels", [{"app": "stolen"}, {"app": None}, {"new": "x"}, {"cpuplan.dev/other": "x"}])
def test_labels_of_others_are_not_the_agent_s(setting: Setting, pod: str, labels: dict[str, str | None]) -> None:
    refused(patch(setting, pod, {"metadata": {"labels": labels}}), "labels not the agent's to change: ")


@pytest.mark.parametrize("value", [None, "false"])
def test_the_label_stays_right_whatever_an_agent_asks_for(setting: Setting, pod: str, value: str | None) -> None:
    answer = patch(setting, pod, {"metadata": {"labels": {"cpuplan.dev/managed": value}}})
    assert answer.body["metadata"]["labels"] == {"app": "llm", "cpuplan.dev/managed": "true"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/spec/containers/0/image", "example.test/evil:1"),
        ("/spec/activeDeadlineSeconds", 1),
        ("/spec/tolerations/-", {"operator": "Exists"}),
        ("/metadata/finalizers/0", "example.test/other"),
        ("/metadata/finalizers/-", "example.test/forever"),
        ("/metadata/ownerReferences", [{"apiVersion": "v1", "kind": "Node", "name": "gpu-1", "uid": "1"}]),
    ],
)
def test_nothing_else_of_a_pod_is_the_agent_s(setting: Setting, pod: str, path: str, value: object) -> None:
    body = [
        {"op": "add", "path": "/metadata/annotations/cpuplan.dev~1plan", "value": "{}"},
        {"op": "add", "path": path, "value": value},
    ]
    refused(patch(setting, pod, body, kind=JSON), "an agent may change nothing of a pod but its own annotations")


def test_finalizers_of_others_are_not_the_agent_s_to_remove(setting: Setting, pod: str) -> None:
    answer = patch(setting, pod, {"metadata": {"finalizers": None}})
    refused(answer, "an agent may change nothing of a pod but its own annotations")


def test_an_image_changed_by_replacing_the_pod_is_refused(setting: Setting, pod: str) -> None:
    body = setting.server.must("GET", pod)
    body["spec"]["containers"][0]["image"] = "example.test/evil:1"
    answer = setting.server.call("PUT", pod, body, token=setting.agent_of_gpu_1)
    refused(answer, "an agent may change nothing of a pod but its own annotations")


def test_the_status_of_a_pod_is_not_the_agent_s(setting: Setting, pod: str) -> None:
    answer = patch(setting, f"{pod}/status", {"status": {"phase": "Failed"}})
    refused(answer, "an agent may change nothing of a pod but its own annotations")


@pytest.mark.parametrize("key", ["step_thread_core", "note"])
def test_the_way_by_the_status_leads_to_no_other_annotation(setting: Setting, pod: str, key: str) -> None:
    refused(patch(setting, f"{pod}/status", annotated({key: "4"})), f"annotations not the agent's to change: {key};")


def test_the_way_by_the_status_leads_to_no_other_node(setting: Setting, pod: str) -> None:
    answer = patch(setting, f"{pod}/status", annotated(PLAN), token=setting.agent_of_gpu_2)
    refused(answer, "the agent of node gpu-2 may not change pod")


def test_an_agent_creates_no_pod(setting: Setting) -> None:
    spec = {"nodeName": "gpu-1", "containers": [{"name": "x", "image": "x"}]}
    answer = setting.server.call(
        "POST", PODS, {"metadata": {"name": "evil"}, "spec": spec}, token=setting.agent_of_gpu_1
    )
    refused(answer, "may only change annotations of pods, and asked for CREATE of pods demo/evil")


def test_an_agent_deletes_no_pod(setting: Setting, pod: str) -> None:
    answer = setting.server.call("DELETE", pod, token=setting.agent_of_gpu_1)
    refused(answer, "may only change annotations of pods, and asked for DELETE of pods demo/pod-")


def test_an_agent_deletes_no_collection_of_pods(setting: Setting, pod: str) -> None:
    answer = setting.server.call("DELETE", PODS, token=setting.agent_of_gpu_1)
    refused(answer, "may only change annotations of pods, and asked for DELETE of pods demo/")
    assert setting.server.call("GET", pod).status == HTTPStatus.OK


@pytest.mark.parametrize(
    ("subresource", "spec"),
    [
        ("resize", {"containers": [{"name": "engine", "resources": {"limits": {"cpu": "3"}}}]}),
        ("ephemeralcontainers", {"ephemeralContainers": [{"name": "spy", "image": "example.test/spy:1"}]}),
    ],
)
def test_no_subresource_lets_an_agent_write(setting: Setting, pod: str, subresource: str, spec: object) -> None:
    answer = patch(setting, f"{pod}/{subresource}", {"spec": spec}, kind=STRATEGIC)
    refused(answer, f"may only change annotations of pods, and asked for UPDATE of pods/{subresource} demo/pod-")


@pytest.mark.parametrize(
    ("subresource", "body"),
    [
        ("eviction", {"apiVersion": "policy/v1", "kind": "Eviction"}),
        ("binding", {"target": {"kind": "Node", "name": "gpu-2"}}),
    ],
)
def test_an_agent_neither_evicts_nor_binds(setting: Setting, pod: str, subresource: str, body: dict[str, Any]) -> None:
    named = {**body, "metadata": {"name": pod.rpartition("/")[2]}}
    answer = setting.server.call("POST", f"{pod}/{subresource}", named, token=setting.agent_of_gpu_1)
    refused(answer, f"may only change annotations of pods, and asked for CREATE of pods/{subresource} demo/pod-")


@pytest.mark.parametrize("door", ["exec?command=id&stdout=true", "attach?stdout=true", "portforward?ports=1", "proxy/"])
def test_an_agent_connects_to_no_pod(setting: Setting, pod: str, door: str) -> None:
    answer = setting.server.call("GET", f"{pod}/{door}", token=setting.agent_of_gpu_1)
    refused(answer, "may only change annotations of pods, and asked for CONNECT of pods/")


def test_the_fence_is_about_agents_only(setting: Setting, pod: str) -> None:
    answer = setting.server.call("PATCH", pod, annotated({"note": "changed"}), content_type=MERGE)
    assert answer.status == HTTPStatus.OK, answer.message
