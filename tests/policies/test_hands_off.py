"""Everybody else's hands off our annotations, whatever way they take; removing them is anyone's right."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import pytest

from cpuplan.kube import annotations as keys
from tests.apiserver import Answer
from tests.policies.conftest import Setting
from tests.policies.pods import MERGE, PODS, annotated, make_pod

PLAN = {"cpuplan.dev/status": "Pinned", "cpuplan.dev/plan": "{}"}
AGENT_KEYS = [keys.STATUS, keys.WHY, keys.STEP_CPUS, keys.RESULT_CPU, keys.USABLE_CPUS, keys.PLAN, keys.HOSTFLAG]
APPLY = "application/apply-patch+yaml"


@pytest.fixture
def pod(setting: Setting) -> str:
    """The path of a pod that has a plan."""
    path = make_pod(setting.server, annotations={"step_thread_core": "auto"})
    setting.server.must("PATCH", path, annotated(PLAN), content_type=MERGE, token=setting.agent_of_gpu_1)
    return path


def refused(answer: Answer, keys: str) -> None:
    """The policy refused it, naming the keys and what to do."""
    assert answer.status == HTTPStatus.FORBIDDEN, answer.body
    assert "ValidatingAdmissionPolicy 'cpuplan-hands-off'" in answer.message
    assert f": only the cpuplan agent writes {keys}; take that out of the request" in answer.message


@pytest.mark.parametrize("key", AGENT_KEYS)
@pytest.mark.parametrize("way", ["", "/status"])
def test_nobody_else_sets_or_changes_one(setting: Setting, pod: str, key: str, way: str) -> None:
    answer = setting.server.call("PATCH", pod + way, annotated({key: "forged"}), content_type=MERGE)
    refused(answer, key)


@pytest.mark.parametrize("beside", [{}, {"cpuplan.dev/plan": "forged"}], ids=["alone", "beside a key of the agent"])
def test_a_key_that_does_not_exist_is_refused_with_those_that_do(
    setting: Setting, pod: str, beside: dict[str, str]
) -> None:
    body = annotated({"cpuplan.dev/workres": "0", **beside})
    answer = setting.server.call("PATCH", pod, body, content_type=MERGE)
    assert answer.status == HTTPStatus.FORBIDDEN, answer.body
    assert (
        ": there is no annotation cpuplan.dev/workres; those for you to write are step_thread_core, "
        "cpuplan.dev/workers, cpuplan.dev/container, cpuplan.dev/selftest"
    ) in answer.message


def test_server_side_apply_sets_none(setting: Setting, pod: str) -> None:
    name = pod.rpartition("/")[2]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": {"cpuplan.dev/plan": "x"}}}
    query = {"fieldManager": "user", "force": "true"}
    refused(setting.server.call("PATCH", pod, body, content_type=APPLY, query=query), "cpuplan.dev/plan")


def test_replacing_the_pod_sets_none(setting: Setting, pod: str) -> None:
    body = setting.server.must("GET", pod)
    body["metadata"]["annotations"]["cpuplan.dev/plan"] = "forged"
    refused(setting.server.call("PUT", pod, body), "cpuplan.dev/plan")


def test_replacing_the_pod_as_it_was_read_is_allowed(setting: Setting, pod: str) -> None:
    body = setting.server.must("GET", pod)
    body["metadata"]["annotations"]["note"] = "mine"
    assert setting.server.call("PUT", pod, body).status == HTTPStatus.OK


@pytest.mark.parametrize("collection", [f"{PODS}/{{name}}/binding", "/api/v1/namespaces/demo/bindings"])
def test_a_binding_carries_none_to_its_pod(setting: Setting, collection: str) -> None:
    name = make_pod(setting.server, node=None).rpartition("/")[2]
    body: dict[str, Any] = {
        "metadata": {"name": name, "annotations": {"cpuplan.dev/plan": "forged"}},
        "target": {"kind": "Node", "name": "gpu-1"},
    }
    refused(setting.server.call("POST", collection.format(name=name), body), "cpuplan.dev/plan")
    del body["metadata"]["annotations"]
    assert setting.server.call("POST", collection.format(name=name), body).status == HTTPStatus.CREATED


@pytest.mark.parametrize("subresource", ["resize", "ephemeralcontainers"])
def test_the_other_ways_to_write_a_pod_leave_its_annotations_alone(
    setting: Setting, pod: str, subresource: str
) -> None:
    setting.server.call("PATCH", f"{pod}/{subresource}", annotated({"cpuplan.dev/plan": "forged"}), content_type=MERGE)
    annotations = setting.server.must("GET", pod)["metadata"]["annotations"]
    assert annotations == {"step_thread_core": "auto", **PLAN}


def test_a_kubelet_does_not_set_one_with_the_status(setting: Setting, pod: str) -> None:
    answer = setting.as_kubelet("gpu-1", "PATCH", f"{pod}/status", annotated({"cpuplan.dev/plan": "x"}), MERGE)
    refused(answer, "cpuplan.dev/plan")


def test_the_image_of_the_injected_init_container_can_be_corrected(setting: Setting, pod: str) -> None:
    right = {"name": "cpuplan", "image": "registry.example.com/cpuplan:right"}
    body = {"spec": {"initContainers": [right]}}
    answer = setting.server.call("PATCH", pod, body, content_type="application/strategic-merge-patch+json")
    assert answer.status == HTTPStatus.OK, answer.body
    assert answer.body["spec"]["initContainers"][0]["image"] == right["image"]


def test_anyone_removes_them(setting: Setting, pod: str) -> None:
    body = annotated({"cpuplan.dev/plan": None, "cpuplan.dev/status": None})
    answer = setting.server.call("PATCH", pod, body, content_type=MERGE)
    assert answer.body["metadata"]["annotations"] == {"step_thread_core": "auto"}


def test_the_users_own_annotations_stay_theirs(setting: Setting, pod: str) -> None:
    body = annotated({"step_thread_core": "4", "cpuplan.dev/workers": "0,-", "cpuplan.dev/selftest": "skip"})
    assert setting.server.call("PATCH", pod, body, content_type=MERGE).status == HTTPStatus.OK


def test_another_service_account_of_our_namespace_is_no_agent(setting: Setting, pod: str) -> None:
    agent = {
        "Impersonate-User": "system:serviceaccount:cpuplan:cpuplan-operator",
        "Impersonate-Group": "system:masters",
    }
    answer = setting.server.call("PATCH", pod, annotated({"cpuplan.dev/plan": "x"}), content_type=MERGE, headers=agent)
    refused(answer, "cpuplan.dev/plan")
