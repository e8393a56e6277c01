"""A pod as the operator sees it: the few facts it needs, parsed once from the API's JSON.

Pods are large (ten kilobytes and more); of tens of thousands only these values are kept.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from ..kube import injected
from ..kube.annotations import HOSTFLAG, PLAN, SETTING, STATUS, WHY
from ..kube.pods import MIRROR_ANNOTATION
from ..model.cpulist import format_cpu_list
from ..model.errors import CpuPlanError
from ..model.podplan import ContainerPlan, PodPlan
from .startup import StartFailure, init_failure

_, _PARENT, _FOLDER = PurePosixPath(injected.PLAN_DIRECTORY).parts
_OCCUPIES_PLAN_DIRECTORY = re.compile(rf"/*{_PARENT}(/+({_FOLDER}(/.*)?)?)?")
"""The plan's folder, something in it, or all of /etc: the pattern of the chart's injection policy."""

_ENDED_PHASES = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class PlanSeen:
    """What the operator uses of a published plan.

    `facts` are what is worth an Event when it changes, as names and values for people.
    """

    generation: int
    pod_uid: str
    boot_id: str
    reasons: frozenset[str]
    facts: tuple[tuple[str, str], ...]


SHORTAGE = "'s CPU shortage"
"""How the name of the fact ends that a container's CPU limit is too small for its workers."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The self-test's verdict on this pod: `pass`, `fail`, `stuck`, …, and its fault code (empty for none)."""

    outcome: str
    fault: str


@dataclass(frozen=True, slots=True)
class Injection:
    """Whether the admission policy put its init container into the pod.

    Attributes:
        is_there: the init container is in the pod.
        was_due: the pod was created with the annotation; False also where that cannot be told.
        obstacle: what in the pod made the policy leave it alone; empty for none.
    """

    is_there: bool
    was_due: bool
    obstacle: str


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """One pod that is planned, or asks to be. Times are seconds since the epoch; None is not known.

    Attributes:
        node: where it is scheduled; empty when it is not.
        has_ended: all its containers ended for good.
        deletion_due: when its deletion should be done at the latest; None when it is not being deleted.
        setting: the user's `step_thread_core`, None where it was removed.
        plan: None without a plan, or with a text that is not one (`plan_defect` says why).
        planned_at: when the agent last wrote its annotations.
        asked_at: when the setting was last written.
        verdict: of the self-test, None without one or with one of another pod.
        start_failure: what keeps the injected init container from starting; None for nothing.
        index_entry: the pod's member of its node's JSON object in the index; empty when it has no plan.
        resource_version: of the object; tells which of two states is newer, and not whether they differ.
    """

    uid: str
    namespace: str
    name: str
    node: str
    created_at: float
    scheduled_at: float | None
    has_ended: bool
    deletion_due: float | None
    setting: str | None
    status: str | None
    why: str
    plan: PlanSeen | None
    plan_defect: str
    planned_at: float | None
    asked_at: float | None
    verdict: Verdict | None
    injection: Injection
    start_failure: StartFailure | None
    index_entry: str
    resource_version: str = field(compare=False)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def observed_pod(pod: Mapping[str, Any]) -> ObservedPod:
    """The facts of a pod as the API server sends it.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is not a pod.
        RecursionError: something in it is nested without end.
    """
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    namespace, name, uid = str(metadata["namespace"]), str(metadata["name"]), str(metadata["uid"])
    created_at = epoch_seconds(metadata["creationTimestamp"])
    plan, document, defect = _plan(annotations.get(PLAN), uid)
    why = annotations.get(WHY, "")
    state = annotations.get(STATUS)
    deleted = metadata.get("deletionTimestamp")
    injection = _injection(metadata, spec, annotations, created_at)
    return ObservedPod(
        uid=uid,
        namespace=namespace,
        name=name,
        node=str(spec.get("nodeName") or ""),
        created_at=created_at,
        scheduled_at=_scheduled_at(status),
        has_ended=status.get("phase") in _ENDED_PHASES,
        deletion_due=None if deleted is None else epoch_seconds(deleted),
        setting=annotations.get(SETTING),
        status=state,
        why=why,
        plan=plan,
        plan_defect=defect,
        planned_at=_written_at(metadata, STATUS),
        asked_at=_written_at(metadata, SETTING),
        verdict=_verdict(annotations.get(HOSTFLAG), uid),
        injection=injection,
        start_failure=init_failure(spec, status) if injection.is_there else None,
        index_entry=_index_entry(f"{namespace}/{name}", state, why, document),
        resource_version=str(metadata.get("resourceVersion", "")),
    )


def epoch_seconds(timestamp: str) -> float:
    """Seconds since the epoch of an API timestamp (RFC 3339, UTC)."""
    return datetime.fromisoformat(timestamp).timestamp()


def _plan(text: str | None, uid: str) -> tuple[PlanSeen | None, Any, str]:
    """The plan, its JSON document for the index, and what is wrong with the text."""
    if not text:
        return None, None, ""
    try:
        plan = PodPlan.from_json(text)
    except CpuPlanError as error:
        return None, None, str(error)
    seen = plan_seen(plan)
    # A plan of another pod (copied with its manifest) is reported, and holds no CPUs in the index.
    return seen, json.loads(text) if plan.pod_uid == uid else None, ""


def plan_seen(plan: PodPlan) -> PlanSeen:
    """What the operator uses of a plan."""
    return PlanSeen(
        generation=plan.generation,
        pod_uid=plan.pod_uid,
        boot_id=plan.boot_id,
        reasons=frozenset(container.reason for _, container in plan.containers),
        facts=tuple(fact for name, container in plan.containers for fact in _facts(name, container)),
    )


def _facts(name: str, plan: ContainerPlan) -> Iterator[tuple[str, str]]:
    yield f"{name}'s reason", plan.reason
    yield f"{name}'s step CPUs", ";".join(format_cpu_list(worker.cpus) for worker in plan.workers if worker.cpus)
    yield f"{name}'s result CPU", "" if plan.result is None else str(plan.result)
    yield f"{name}'s usable CPUs", str(plan.usable)
    if plan.shortage:
        yield f"{name}{SHORTAGE}", "yes"


def _verdict(text: str | None, uid: str) -> Verdict | None:
    try:
        document = json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("podUID", uid) != uid:
        return None
    return Verdict(outcome=_printable(document.get("verdict")), fault=_printable(document.get("fault")))


def _printable(value: object) -> str:
    """A word of a JSON object; empty for anything else, half of a surrogate pair replaced."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""


def _index_entry(key: str, status: str | None, why: str, document: Any) -> str:
    if status is None:
        return ""
    value = {"status": status, "why": why, "plan": document}
    return f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'))}"


def _scheduled_at(status: Mapping[str, Any]) -> float | None:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "True":
            since = condition.get("lastTransitionTime")
            return None if since is None else epoch_seconds(since)
    return None


def _owners(metadata: Mapping[str, Any], annotation: str) -> Iterator[Mapping[str, Any]]:
    """The managedFields entries that own an annotation: who wrote its present value, when, and what else."""
    for entry in metadata.get("managedFields") or ():
        written = (entry.get("fieldsV1") or {}).get("f:metadata") or {}
        if f"f:{annotation}" in (written.get("f:annotations") or {}):
            yield entry


def _written_at(metadata: Mapping[str, Any], annotation: str) -> float | None:
    times = [epoch_seconds(entry["time"]) for entry in _owners(metadata, annotation) if entry.get("time")]
    return max(times, default=None)


def _was_created_with_setting(metadata: Mapping[str, Any], created_at: float) -> bool:
    """Whether the request that created the pod also wrote the setting, as far as managedFields can tell.

    That request's entry owns the pod's containers too, and its time is the creation's as long as the same
    manager wrote nothing later.
    """
    return any(
        "f:spec" in entry["fieldsV1"] and entry.get("time") and epoch_seconds(entry["time"]) <= created_at
        for entry in _owners(metadata, SETTING)
    )


def _injection(
    metadata: Mapping[str, Any], spec: Mapping[str, Any], annotations: Mapping[str, str], created_at: float
) -> Injection:
    init_names = {container.get("name") for container in spec.get("initContainers") or ()}
    volumes = {volume.get("name"): volume for volume in spec.get("volumes") or ()}
    is_there = injected.NAME in init_names and "downwardAPI" in (volumes.get(injected.NAME) or {})
    return Injection(
        is_there=is_there,
        was_due=not is_there and _was_created_with_setting(metadata, created_at),
        obstacle="" if is_there else _obstacle(spec, annotations, init_names, set(volumes)),
    )


def _obstacle(
    spec: Mapping[str, Any], annotations: Mapping[str, str], init_names: set[Any], volume_names: set[Any]
) -> str:
    """What the conditions of the chart's injection policy find, in its order."""
    containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    if MIRROR_ANNOTATION in annotations:
        return "it is a static pod"
    systems = ((spec.get("os") or {}).get("name"), (spec.get("nodeSelector") or {}).get("kubernetes.io/os"))
    if any(system not in (None, "linux") for system in systems):
        return "it is no Linux pod"
    if injected.NAME in init_names | {container.get("name") for container in containers}:
        return f"it has a container of its own named {injected.NAME}"
    if injected.NAME in volume_names:
        return f"it has a volume of its own named {injected.NAME}"
    occupied = sorted(path for path in map(str, _mounted(containers)) if _OCCUPIES_PLAN_DIRECTORY.fullmatch(path))
    return f"it has a mount of its own at {occupied[0]}" if occupied else ""


def _mounted(containers: Iterable[Mapping[str, Any]]) -> Iterator[Any]:
    """Where the containers have mounts or block devices."""
    for container in containers:
        for mount in container.get("volumeMounts") or ():
            yield mount.get("mountPath")
        for device in container.get("volumeDevices") or ():
            yield device.get("devicePath")
