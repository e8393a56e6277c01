"""A warning, and no more, of settings that stand on a workload itself instead of in its pod template."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver import Answer, ApiServer
from tests.policies.pods import MERGE, annotated

ROOT = Path(__file__).parents[2]

GROUPS = {
    "Deployment": "apps",
    "StatefulSet": "apps",
    "DaemonSet": "apps",
    "ReplicaSet": "apps",
    "Job": "batch",
    "CronJob": "batch",
}
ASKING = {"step_thread_core": "auto"}
FROM = "Validation failed for ValidatingAdmissionPolicy 'cpuplan-misplaced' with binding 'cpuplan-misplaced': "
DEPLOYMENTS = "/apis/apps/v1/namespaces/demo/deployments"
TO_TEMPLATE = "no effect outside the pod template; move it to spec.template.metadata.annotations"
TO_CRON_TEMPLATE = "no effect outside the pod template; move it to spec.jobTemplate.spec.template.metadata.annotations"


def workload(kind: str, own: dict[str, str], template: dict[str, str] | None = None) -> dict[str, Any]:
    """A workload with annotations of its own, and others in its pod template."""
    pods: dict[str, Any] = {
        "metadata": {"labels": {"app": "w"}, "annotations": template or {}},
        "spec": {"containers": [{"name": "engine", "image": "example.test/engine:1"}], "restartPolicy": "Always"},
    }
    spec: dict[str, Any] = {"template": pods}
    if GROUPS[kind] == "batch":
        pods["spec"]["restartPolicy"] = "Never"
    else:
        spec["selector"] = {"matchLabels": {"app": "w"}}
    if kind == "StatefulSet":
        spec["serviceName"] = "w"
    if kind == "CronJob":
        spec = {"schedule": "0 0 * * *", "jobTemplate": {"spec": spec}}
    return {"metadata": {"name": "w", "annotations": own}, "spec": spec}


def create(server: ApiServer, kind: str, body: dict[str, Any], **options: Any) -> Answer:
    """The answer to a dry run, which must have worked."""
    collection = f"/apis/{GROUPS[kind]}/v1/namespaces/demo/{kind.lower()}s"
    answer = server.call("POST", collection, body, query={"dryRun": "All"}, **options)
    assert answer.status == HTTPStatus.CREATED, answer.message
    return answer


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job"])
def test_a_setting_on_the_workload_alone_is_warned_of(api_server: ApiServer, kind: str) -> None:
    answer = create(api_server, kind, workload(kind, ASKING))
    assert answer.warnings == (f"{FROM}{kind} demo/w: step_thread_core has {TO_TEMPLATE}",)


@pytest.mark.parametrize("place", ["metadata", "spec.jobTemplate.metadata"])
def test_a_setting_at_either_wrong_place_of_a_cronjob_is_warned_of(api_server: ApiServer, place: str) -> None:
    body = workload("CronJob", ASKING if place == "metadata" else {})
    if place != "metadata":
        body["spec"]["jobTemplate"]["metadata"] = {"annotations": ASKING}
    answer = create(api_server, "CronJob", body)
    assert answer.warnings == (f"{FROM}CronJob demo/w: step_thread_core has {TO_CRON_TEMPLATE}",)


def test_several_settings_are_one_warning(api_server: ApiServer) -> None:
    own = {"cpuplan.dev/container": "engine", "step_thread_core": "auto", "cpuplan.dev/plan": "{}", "note": "x"}
    (warning,) = create(api_server, "Deployment", workload("Deployment", own)).warnings
    assert warning == (
        f"{FROM}Deployment demo/w: step_thread_core, cpuplan.dev/container have no effect outside the pod template; "
        "move them to spec.template.metadata.annotations"
    )


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"])
def test_a_setting_that_the_template_has_too_is_no_mistake(api_server: ApiServer, kind: str) -> None:
    assert create(api_server, kind, workload(kind, {"step_thread_core": "off"}, ASKING)).warnings == ()


def test_a_template_with_one_setting_does_not_excuse_another(api_server: ApiServer) -> None:
    body = workload("Deployment", {"cpuplan.dev/workers": "0"}, ASKING)
    (warning,) = create(api_server, "Deployment", body).warnings
    assert "Deployment demo/w: cpuplan.dev/workers has no effect" in warning


@pytest.mark.parametrize("own", [{}, {"note": "x"}, {"cpuplan.dev/note": "x"}])
def test_other_annotations_are_nobodys_business(api_server: ApiServer, own: dict[str, str]) -> None:
    assert create(api_server, "Deployment", workload("Deployment", own, ASKING)).warnings == ()


def test_annotating_a_workload_that_is_there_is_warned_of(api_server: ApiServer) -> None:
    path = f"{DEPLOYMENTS}/annotated"
    body = workload("Deployment", {})
    body["metadata"]["name"] = "annotated"
    api_server.must("POST", DEPLOYMENTS, body)
    answer = api_server.call("PATCH", path, annotated(dict(ASKING)), content_type=MERGE)
    assert answer.status == HTTPStatus.OK
    assert answer.warnings == (f"{FROM}Deployment demo/annotated: step_thread_core has {TO_TEMPLATE}",)


def test_replicasets_which_get_their_deployment_s_annotations_are_left_alone(api_server: ApiServer) -> None:
    assert create(api_server, "ReplicaSet", workload("ReplicaSet", ASKING)).warnings == ()


def test_what_a_controller_makes_is_left_alone(api_server: ApiServer) -> None:
    body = workload("Job", ASKING)
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "0123", "controller": True}
    body["metadata"]["ownerReferences"] = [owner]
    assert create(api_server, "Job", body).warnings == ()


@pytest.mark.parametrize(
    "headers",
    [
        {"Impersonate-User": "system:kube-controller-manager", "Impersonate-Group": "system:masters"},
        {"Impersonate-User": "system:serviceaccount:kube-system:deployment-controller"},
    ],
)
def test_kubernetes_own_controllers_are_not_warned(api_server: ApiServer, headers: dict[str, str]) -> None:
    account = headers["Impersonate-User"]
    if account.startswith("system:serviceaccount:"):
        api_server.ensure(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            {
                "metadata": {"name": "deployment-controller"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": account}],
            },
        )
    assert create(api_server, "Deployment", workload("Deployment", ASKING), headers=headers).warnings == ()


def test_the_documented_warning_is_the_real_one(api_server: ApiServer) -> None:
    body = workload("Deployment", ASKING)
    body["metadata"]["name"] = "llm"
    (warning,) = create(api_server, "Deployment", body).warnings
    document = " ".join((ROOT / "docs" / "annotations.md").read_text().split())
    assert warning.removeprefix(FROM) in document
