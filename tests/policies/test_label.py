"""The label cpuplan.dev/managed follows the annotations within the request that changes either."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from tests.policies.conftest import Setting
from tests.policies.pods import MERGE, PODS, annotated, make_pod

LABEL = "cpuplan.dev/managed"
READY = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}


def labels_after(setting: Setting, path: str, body: object) -> dict[str, str]:
    """The pod's labels after an administrator's merge patch."""
    patched = setting.server.must("PATCH", path, body, content_type=MERGE)
    labels: dict[str, str] = patched["metadata"].get("labels", {})
    return labels


@pytest.mark.parametrize("way", ["", "/status"])
def test_annotating_a_running_pod_labels_it_and_removing_unlabels_it(setting: Setting, way: str) -> None:
    path = make_pod(setting.server) + way
    assert labels_after(setting, path, annotated({"step_thread_core": "auto"})) == {LABEL: "true"}
    assert labels_after(setting, path, annotated({"step_thread_core": None})) == {}


def test_off_is_a_setting_too(setting: Setting) -> None:
    path = make_pod(setting.server)
    assert labels_after(setting, path, annotated({"step_thread_core": "off"})) == {LABEL: "true"}


@pytest.mark.parametrize("way", ["", "/status"])
@pytest.mark.parametrize("value", [None, "false", ""])
def test_nobody_takes_the_label_off_a_planned_pod(setting: Setting, way: str, value: str | None) -> None:
    path = make_pod(setting.server, annotations={"step_thread_core": "auto"}, labels={"app": "llm"})
    body = {"metadata": {"labels": {LABEL: value}}}
    assert labels_after(setting, path + way, body) == {"app": "llm", LABEL: "true"}


@pytest.mark.parametrize("way", ["", "/status"])
def test_nobody_puts_the_label_on_another_pod(setting: Setting, way: str) -> None:
    path = make_pod(setting.server, labels={"app": "llm"})
    assert labels_after(setting, path + way, {"metadata": {"labels": {LABEL: "true"}}}) == {"app": "llm"}


def test_the_label_stays_until_the_agent_has_cleaned_up(setting: Setting) -> None:
    path = make_pod(setting.server, annotations={"step_thread_core": "auto"})
    status = annotated({"cpuplan.dev/status": "Pinned"})
    setting.server.must("PATCH", path, status, content_type=MERGE, token=setting.agent_of_gpu_1)
    assert labels_after(setting, path, annotated({"step_thread_core": None})) == {LABEL: "true"}
    cleaned = annotated({"cpuplan.dev/status": None})
    body = setting.server.must("PATCH", path, cleaned, content_type=MERGE, token=setting.agent_of_gpu_1)
    assert "labels" not in body["metadata"]


def test_a_kubelet_s_status_is_never_refused_for_a_label_that_is_wrong(setting: Setting) -> None:
    """NodeRestriction refuses a status in which a label differs, also when a policy made it differ.

    Labels are wrong on pods that were annotated before the policies were installed; here a kubelet annotates.
    """
    path = make_pod(setting.server)
    setting_by_kubelet = annotated({"step_thread_core": "auto"})
    assert setting.as_kubelet("gpu-1", "PATCH", f"{path}/status", setting_by_kubelet, MERGE).status == HTTPStatus.OK
    answer = setting.as_kubelet("gpu-1", "PATCH", f"{path}/status", READY, MERGE)
    assert answer.status == HTTPStatus.OK, answer.message
    assert "labels" not in answer.body["metadata"]
    assert labels_after(setting, path, annotated({"note": "anything"})) == {LABEL: "true"}


def test_a_kubelet_s_mirror_pod_gets_the_label(setting: Setting) -> None:
    uid = setting.server.node("gpu-1")
    owner = {"apiVersion": "v1", "kind": "Node", "name": "gpu-1", "uid": uid, "controller": True}
    annotations = {
        "kubernetes.io/config.mirror": "0123",
        "kubernetes.io/config.hash": "0123",
        "kubernetes.io/config.source": "file",
        "step_thread_core": "auto",
        "cpuplan.dev/plan": "{}",
    }
    metadata = {"name": "static-gpu-1", "annotations": annotations, "ownerReferences": [owner]}
    spec = {"nodeName": "gpu-1", "containers": [{"name": "engine", "image": "example.test/engine:1"}]}
    body = {"metadata": metadata, "spec": spec}
    answer = setting.as_kubelet("gpu-1", "POST", PODS, body, "application/json")
    assert answer.status == HTTPStatus.CREATED, answer.message
    assert answer.body["metadata"]["labels"] == {LABEL: "true"}
    assert "cpuplan.dev/plan" not in answer.body["metadata"]["annotations"]
    assert "initContainers" not in answer.body["spec"]
