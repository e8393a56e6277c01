"""Where `cpuplan explain` finds a pod's plan: a file, this pod's own volume, or the API server."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..host.root import read_text
from ..kube.annotations import MANAGED_SELECTOR, SETTING, plan_in
from ..kube.errors import KubeError
from ..kube.paths import pod_path, pods_path
from ..model.errors import CpuPlanError
from ..model.podplan import ContainerPlan, PodPlan
from .errors import FAILED, WRONG_USAGE, CliError

if TYPE_CHECKING:
    from ..kube.client import KubeClient

KUBECONFIG = "KUBECONFIG"


@dataclass(frozen=True, slots=True)
class PodSource:
    """A pod's plan, and the plans of its neighbours on the node by their names (empty where not known)."""

    name: str
    plan: PodPlan
    neighbours: Mapping[str, ContainerPlan]


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
        return PodSource(f"the pod of {name}", _plan(text), {})
    if not isinstance(document, dict) or document.get("kind") != "Pod":
        raise CliError(f"{name} is neither a pod nor a plan; get a pod with kubectl get pod NAME -o json")
    return _of_pod(document)


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
    return PodSource("this pod", _plan(text), {})


def read_cluster(pod: str, namespace: str | None, kubeconfig: Path | None) -> PodSource:
    """The plan of a pod of the cluster, with its neighbours where this user may list them.

    Args:
        namespace: None: that of the kubeconfig's current context, else `default`.
        kubeconfig: None: kubectl's own, else the service account of the pod this runs in.

    Raises:
        CliError: the API server or the pod cannot be had, or the pod has no plan.
        ModuleNotFoundError: the package kubernetes is not installed.
    """
    from ..kube.client import KubeClient  # noqa: PLC0415 - the only command that needs the cluster
    from ..kube.connection import connect  # noqa: PLC0415

    config = default_kubeconfig() if kubeconfig is None else (kubeconfig,)
    try:
        client = KubeClient(connect(config))
        found = _of_pod(client.get(pod_path(namespace or _context_namespace(config), pod)))
    except KubeError as error:
        raise CliError(str(error)) from error
    return PodSource(found.name, found.plan, _neighbours(client, found.plan))


def _context_namespace(kubeconfig: Sequence[Path] | None) -> str:
    """The namespace of the current context of kubeconfig files that `connect` has accepted."""
    from kubernetes import config  # noqa: PLC0415

    if kubeconfig is None:
        return "default"
    _, current = config.list_kube_config_contexts(  # type: ignore[no-untyped-call]
        config_file=os.pathsep.join(map(str, kubeconfig))
    )
    return str(current["context"].get("namespace") or "default")


def default_kubeconfig() -> tuple[Path, ...] | None:
    """kubectl's own: the files of KUBECONFIG, else ~/.kube/config; None in a pod without either."""
    named = tuple(Path(name) for name in os.environ.get(KUBECONFIG, "").split(os.pathsep) if name)
    if named:
        return named
    usual = Path(os.path.expanduser("~/.kube/config"))  # noqa: PTH111 - Path.expanduser raises without a home
    return (usual,) if usual.is_file() else None


def _of_pod(pod: Mapping[str, Any]) -> PodSource:
    metadata = _mapping(pod.get("metadata"))
    name = f"{metadata.get('namespace', 'default')}/{metadata.get('name', 'unnamed')}"
    annotations = {key: text for key, text in _mapping(metadata.get("annotations")).items() if isinstance(text, str)}
    try:
        plan = plan_in(annotations)
    except CpuPlanError as error:
        raise CliError(f"pod {name}: {error}") from error
    if plan is not None:
        return PodSource(name, plan, {})
    if SETTING not in annotations:
        raise CliError(f"pod {name} asks for no plan; set one with kubectl annotate pod NAME {SETTING}=auto")
    node = _mapping(pod.get("spec")).get("nodeName") or "none yet"
    raise CliError(f"pod {name} has no plan yet; does an agent run on its node ({node})?")


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
        if other.plan.pod_uid != plan.pod_uid and other.plan.boot_id == plan.boot_id:
            found |= {f"{other.name} container {name}": container for name, container in other.plan.containers}
    return found
