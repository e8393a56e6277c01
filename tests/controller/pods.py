"""Pods as the API server sends them, as the operator's tests need them: described by what differs."""

from __future__ import annotations

import json
from typing import Any

from cpuplan.kube.annotations import annotations_of
from cpuplan.model import reasons
from cpuplan.model.podplan import ContainerPlan, PodPlan, WorkerPlan

CREATED = "2026-05-04T10:00:00Z"
CREATED_SECONDS = 1777888800.0
"""CREATED as seconds since the epoch."""

BOOT = "11111111-2222-3333-4444-555555555555"

Json = dict[str, Any]


def uid_of(name: str) -> str:
    """The UID of a test's pod."""
    return f"uid-{name}"


def container_plan(*, reason: str = reasons.PINNED, why: str = "one core per worker") -> ContainerPlan:
    """The plan of one container with one worker, pinned unless another reason is given."""
    is_pinned = reason == reasons.PINNED
    return ContainerPlan(
        setting="auto",
        mask=frozenset(range(32)),
        quota=None,
        usable=32,
        devices=("GPU-1",),
        workers=(WorkerPlan("0000:1b:00.0", "GPU-1", frozenset({4, 36} if is_pinned else ()), "near its device"),),
        result=31 if is_pinned else None,
        pool_cpus=frozenset(range(5, 31)),
        confidence="exact",
        reason=reason,
        why=why,
    )


def pod_plan(
    name: str,
    *,
    node: str = "gpu-1",
    generation: int = 1,
    boot_id: str = BOOT,
    uid: str | None = None,
    reason: str = reasons.PINNED,
    why: str = "one core per worker",
) -> PodPlan:
    """A published plan of a pod with one container."""
    containers = (("engine", container_plan(reason=reason, why=why)),)
    return PodPlan(generation, uid_of(name) if uid is None else uid, boot_id, node, containers)


def pod(
    name: str,
    *,
    node: str = "gpu-1",
    namespace: str = "demo",
    setting: str | None = "auto",
    plan: PodPlan | None = None,
    annotations: Json | None = None,
    managed_fields: list[Json] | None = None,
    metadata: Json | None = None,
    spec: Json | None = None,
    status: Json | None = None,
) -> Json:
    """A planned pod as the API server sends it."""
    texts = {} if setting is None else {"step_thread_core": setting}
    if plan is not None:
        texts |= annotations_of(plan)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": uid_of(name),
            "creationTimestamp": CREATED,
            "labels": {"cpuplan.dev/managed": "true"},
            "annotations": {**texts, **(annotations or {})},
            "managedFields": managed_fields or [],
            **(metadata or {}),
        },
        "spec": {"nodeName": node, "containers": [{"name": "engine"}], **(spec or {})},
        "status": {"phase": "Running", **(status or {})},
    }


def planned(name: str, *, node: str = "gpu-1", generation: int = 1, why: str = "one core per worker") -> Json:
    """A pod that has its plan."""
    return pod(name, node=node, plan=pod_plan(name, node=node, generation=generation, why=why))


def field_owner(manager: str, annotation: str, time: str, *, owns_spec: bool = False) -> Json:
    """A managedFields entry: who wrote an annotation, when, and whether together with the pod's spec."""
    fields: Json = {"f:metadata": {"f:annotations": {f"f:{annotation}": {}}}}
    if owns_spec:
        fields["f:spec"] = {"f:containers": {}}
    return {"manager": manager, "operation": "Update", "time": time, "fieldsV1": fields}


def injected(*, image: str = "cpuplan:1") -> Json:
    """The parts of a pod's spec that the injection policy adds."""
    return {
        "initContainers": [{"name": "cpuplan", "image": image}],
        "volumes": [{"name": "cpuplan", "downwardAPI": {"items": []}}],
    }


def waits(reason: str, *, container: str = "cpuplan") -> Json:
    """The status of a pod one of whose init containers waits."""
    states = [{"name": container, "state": {"waiting": {"reason": reason}}}]
    return {"phase": "Pending", "initContainerStatuses": states}


def verdict(name: str, outcome: str, fault: str = "") -> Json:
    """The annotation with the self-test's verdict."""
    return {"cpuplan.dev/hostflag": json.dumps({"verdict": outcome, "fault": fault, "podUID": uid_of(name)})}
