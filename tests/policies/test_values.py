"""Bad values on objects that exist already; pairs/ has those on new ones."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import pytest

from tests.apiserver import Answer, ApiServer
from tests.policies.conftest import Setting
from tests.policies.pods import MERGE, PODS, annotated, make_pod

DEPLOYMENTS = "/apis/apps/v1/namespaces/demo/deployments"
BAD = {"step_thread_core": "banana"}


def refused(answer: Answer, words: str) -> None:
    """The policy refused it with these words."""
    assert answer.status == HTTPStatus.UNPROCESSABLE_ENTITY, answer.body
    assert "ValidatingAdmissionPolicy 'cpuplan-values'" in answer.message
    assert words in answer.message


def make_deployment(server: ApiServer, name: str, annotations: Mapping[str, str], container: str = "engine") -> str:
    """The path of a new Deployment with these annotations in its template."""
    template = {
        "metadata": {"labels": {"app": name}, "annotations": dict(annotations)},
        "spec": {"containers": [{"name": container, "image": "example.test/engine:1"}]},
    }
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
    server.must("POST", DEPLOYMENTS, {"metadata": {"name": name}, "spec": spec})
    return f"{DEPLOYMENTS}/{name}"


def template_patch(annotations: Mapping[str, str | None]) -> dict[str, Any]:
    """A merge patch of a Deployment's template."""
    return {"spec": {"template": annotated(annotations)}}


def test_annotating_a_running_pod_with_a_bad_value_is_refused(setting: Setting) -> None:
    path = make_pod(setting.server)
    answer = setting.server.call("PATCH", path, annotated(BAD), content_type=MERGE)
    refused(answer, 'step_thread_core is "banana", expected off, auto or a CPU number such as 4; correct')


@pytest.mark.parametrize("collection", [f"{PODS}/{{name}}/binding", "/api/v1/namespaces/demo/bindings"])
def test_a_binding_carries_no_bad_value_to_its_pod(setting: Setting, collection: str) -> None:
    name = make_pod(setting.server, node=None).rpartition("/")[2]
    body = {"metadata": {"name": name, "annotations": BAD}, "target": {"kind": "Node", "name": "gpu-1"}}
    refused(setting.server.call("POST", collection.format(name=name), body), 'step_thread_core is "banana"')


def test_a_bad_value_that_is_there_hinders_no_other_change_of_a_pod(setting: Setting) -> None:
    path = make_bad_pod(setting)
    answer = setting.server.call("PATCH", path, annotated({"note": "x"}), content_type=MERGE)
    assert answer.status == HTTPStatus.OK, answer.message
    status = {"status": {"phase": "Running"}}
    assert setting.as_kubelet("gpu-1", "PATCH", f"{path}/status", status, MERGE).status == HTTPStatus.OK


def test_a_bad_value_that_is_there_is_replaced_by_no_other_bad_one(setting: Setting) -> None:
    path = make_bad_pod(setting)
    answer = setting.server.call("PATCH", path, annotated({"step_thread_core": "cherry"}), content_type=MERGE)
    refused(answer, 'step_thread_core is "cherry"')


def test_a_bad_value_that_is_there_can_be_corrected(setting: Setting) -> None:
    path = make_bad_pod(setting)
    answer = setting.server.call("PATCH", path, annotated({"step_thread_core": "4"}), content_type=MERGE)
    assert answer.status == HTTPStatus.OK, answer.message


def test_an_agent_plans_a_pod_that_has_a_bad_value(setting: Setting) -> None:
    """It has to say there that the value is bad."""
    path = make_bad_pod(setting)
    body = annotated({"cpuplan.dev/status": "Error"})
    answer = setting.server.call("PATCH", path, body, content_type=MERGE, token=setting.agent_of_gpu_1)
    assert answer.status == HTTPStatus.OK, answer.message


def test_a_template_is_checked_when_it_changes(setting: Setting) -> None:
    path = make_deployment(setting.server, "changed", {"step_thread_core": "auto"})
    refused(setting.server.call("PATCH", path, template_patch(BAD), content_type=MERGE), "Deployment demo/changed: ")


def test_a_container_renamed_under_its_annotation_is_noticed(setting: Setting) -> None:
    annotations = {"step_thread_core": "auto", "cpuplan.dev/container": "engine"}
    path = make_deployment(setting.server, "renamed", annotations)
    renamed = {"spec": {"template": {"spec": {"containers": [{"name": "server", "image": "example.test/engine:1"}]}}}}
    answer = setting.server.call("PATCH", path, renamed, content_type=MERGE)
    refused(answer, 'cpuplan.dev/container is "engine", expected one of the containers server')


def test_a_scaled_deployment_is_not_checked_again(setting: Setting) -> None:
    path = make_deployment(setting.server, "scaled", {"step_thread_core": "auto"})
    assert setting.server.call("PATCH", path, {"spec": {"replicas": 3}}, content_type=MERGE).status == HTTPStatus.OK


def test_a_template_with_the_label_and_the_setting_is_fine(setting: Setting) -> None:
    path = make_deployment(setting.server, "labelled", {"step_thread_core": "auto"})
    body = {"spec": {"template": {"metadata": {"labels": {"cpuplan.dev/managed": "true"}}}}}
    assert setting.server.call("PATCH", path, body, content_type=MERGE).status == HTTPStatus.OK
    refused(
        setting.server.call("PATCH", path, template_patch({"step_thread_core": None}), content_type=MERGE),
        "the pod template has the label cpuplan.dev/managed, which the API server keeps",
    )


def make_bad_pod(setting: Setting) -> str:
    """The path of a pod with a bad value, as one that is older than the policies.

    The mirror of a static pod is the one pod that comes in with it.
    """
    return make_pod(setting.server, annotations={**BAD, "kubernetes.io/config.mirror": "0123"})
