"""Where `cpuplan explain` finds a pod's plan: a file, this pod's own volume, or the API server."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..host.root import read_text
from ..kube.annotations import MANAGED_SELECTOR, SETTING, plan_in
from ..kube.errors import KubeError, NotFoundError
from ..kube.paths import pod_path, pods_path
from ..model.errors import CpuPlanError
from ..model.podplan import ContainerPlan, PodPlan
from .cluster import chosen_kubeconfig, context_namespace, open_cluster, told
from .errors import FAILED, WRONG_USAGE, CliError
from .explainsource import AgentsPart, AskedPod

if TYPE_CHECKING:
    from ..kube.client import KubeClient


@dataclass(frozen=True, slots=True)
class PodSource:
    """What is known of a pod.

    Attributes:
        plan: None where the pod shows none yet; the agent's part then says why.
        neighbours: the plans of its neighbours on the node by their names, empty where not known.
        agent: what its node's agent says, None where none was asked.
    """

    name: str
    plan: PodPlan | None
    neighbours: Mapping[str, ContainerPlan] = field(default_factory=dict)
    agent: AgentsPart | None = None


AskAgent = Callable[["KubeClient", AskedPod], AgentsPart]
"""Asks the agent of a pod's node, with a client that does not wait and try again."""


def read_file(path: str) -> PodSource:
    """The plan in a file, `-` for standard input: a pod as JSON, or the plan itself.

    Raises:
        CliError: the file cannot be read or is neither; the pod has no plan.
    """
    name = "standard input" if path == "-" else path
    text = _standard_input() if path == "-" else read_text(path)
    if text is None:
        raise CliError(f"{name} cannot be read; give a file with a pod or a plan as JSON, or - for standard input")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CliError(f"{name} is no JSON ({error}); get a pod with kubectl get pod NAME -o json") from error
    if isinstance(document, dict) and "containers" in document and "podUID" in document:
        return PodSource(f"the pod of {name}", _plan(text))
    if not isinstance(document, dict) or document.get("kind") != "Pod":
        raise CliError(f"{name} is neither a pod nor a plan; get a pod with kubectl get pod NAME -o json")
    found = _of_pod(document)
    if found.plan is None:
        raise CliError(_no_plan(found))
    return PodSource(found.name, found.plan)


def _standard_input() -> str | None:
    """All of it; None where it is closed, or is no text."""
    try:
        return None if sys.stdin is None else sys.stdin.read()
    except (OSError, ValueError):
        return None


def read_volume(folder: Path) -> PodSource:
    """The plan in this pod's own volume.

    Raises:
        CliError: there is none.
    """
    text = read_text(folder / "plan")
    if not text:
        here = f"{folder / 'plan'} is {'not there' if text is None else 'still empty'}"
        raise CliError(
            f"no pod is named, and there is no plan of a pod that this runs in ({here}); "
            "give a pod's name and -n NAMESPACE, or a pod as JSON with -f FILE",
            WRONG_USAGE if text is None else FAILED,
        )
    return PodSource("this pod", _plan(text))


def read_cluster(pod: str, namespace: str | None, kubeconfig: Path | None, ask: AskAgent | None) -> PodSource:
    """The plan of a pod of the cluster, with what its node's agent says or else the neighbours that may be listed.

    Args:
        namespace: None: that of the kubeconfig's current context, else `default`.
        kubeconfig: None: kubectl's own, else the service account of the pod this runs in.
        ask: None: no agent is asked.

    Raises:
        CliError: the API server or the pod cannot be had, or the pod has no plan and no agent says why.
        ModuleNotFoundError: the package kubernetes is not installed.
    """
    from ..kube.client import KubeClient, default_retries  # noqa: PLC0415 - the only command that needs the cluster

    files = chosen_kubeconfig(kubeconfig)
    connection = open_cluster(files)
    client = KubeClient(connection)
    where = namespace or context_namespace(files)
    try:
        found = _of_pod(client.get(pod_path(where, pod)))
    except KubeError as error:
        if isinstance(error, NotFoundError) and error.reason:
            raise CliError(_no_pod(pod, where, is_given=bool(namespace))) from error
        raise told(error, files, connection, f"the right to get pods in namespace {where} (docs/explain.md)") from error
    part = None
    if ask is not None and found.asked.node:
        once = KubeClient(connection, user_agent="cpuplan-explain", retries=default_retries().new(total=0))
        part = ask(once, found.asked)
    has_part = part is not None and part.explained is not None
    if found.plan is None and not has_part:
        raise CliError(_no_plan(found, "" if part is None else part.trouble))
    neighbours = {} if has_part or found.plan is None else _neighbours(client, found.plan)
    return PodSource(found.name, found.plan, neighbours, part)


def _no_pod(pod: str, namespace: str, *, is_given: bool) -> str:
    """What to do about a name that the API server does not know: one that has a reason, unlike a proxy's page."""
    helps = f"kubectl get pods -n {namespace} lists those there" if is_given else "give its namespace with -n"
    return f"there is no pod {pod} in namespace {namespace}; {helps}"


@dataclass(frozen=True, slots=True)
class _FoundPod:
    """A pod that asks for a plan.

    Attributes:
        plan: that stands on it, None where there is none.
        asked: how its agent is asked about it.
        waits_for: why it is on no node yet; empty where that is not told.
    """

    name: str
    plan: PodPlan | None
    asked: AskedPod
    waits_for: str


def _of_pod(pod: Mapping[str, Any]) -> _FoundPod:
    metadata, spec = _mapping(pod.get("metadata")), _mapping(pod.get("spec"))
    namespace, own_name = str(metadata.get("namespace", "default")), str(metadata.get("name", "unnamed"))
    name, uid = f"{namespace}/{own_name}", str(metadata.get("uid", ""))
    annotations = {key: text for key, text in _mapping(metadata.get("annotations")).items() if isinstance(text, str)}
    try:
        plan = plan_in(annotations)
    except CpuPlanError as error:
        raise CliError(f"pod {name}: {error}") from error
    if plan is None and SETTING not in annotations:
        raise CliError(f"pod {name} asks for no plan; set one with kubectl annotate pod NAME {SETTING}=auto")
    generation = plan.generation if plan is not None and plan.pod_uid == uid else 0
    asked = AskedPod(namespace, own_name, uid, str(spec.get("nodeName") or ""), generation)
    return _FoundPod(name, plan, asked, _why_not_scheduled(_mapping(pod.get("status"))))


def _why_not_scheduled(status: Mapping[str, Any]) -> str:
    """The scheduler's word on a pod that is on no node; empty without one."""
    conditions = status.get("conditions")
    for condition in conditions if isinstance(conditions, list) else ():
        if _mapping(condition).get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or "")
    return ""


def _no_plan(pod: _FoundPod, trouble: str = "") -> str:
    """Why a pod that asks for a plan has none, as far as that can be seen."""
    if not pod.asked.node:
        because = f": {pod.waits_for}" if pod.waits_for else ""
        return f"pod {pod.name} has no plan yet: it is on no node yet{because}"
    if trouble:
        return f"pod {pod.name} has no plan yet, and {trouble}"
    return f"pod {pod.name} has no plan yet; does an agent run on its node ({pod.asked.node})?"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _plan(text: str) -> PodPlan:
    try:
        return PodPlan.from_json(text)
    except CpuPlanError as error:
        raise CliError(str(error)) from error


def _neighbours(client: KubeClient, plan: PodPlan) -> dict[str, ContainerPlan]:
    """The other plans of the node; none where this user may not list pods of all namespaces."""
    try:
        pods = client.list_objects(
            pods_path(),
            field_selector=f"spec.nodeName={plan.node}",
            label_selector=MANAGED_SELECTOR,
        ).items
    except KubeError:
        return {}
    found: dict[str, ContainerPlan] = {}
    for pod in pods:
        try:
            other = _of_pod(pod)
        except CliError:
            continue
        theirs = other.plan
        if theirs is not None and theirs.pod_uid != plan.pod_uid and theirs.boot_id == plan.boot_id:
            found |= {f"{other.name} container {name}": container for name, container in theirs.containers}
    return found
