"""An audit of the node's GPU containers: read once, nothing written."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..host.root import HostRoot
from ..kube.annotations import is_planned
from ..kube.client import KubeClient
from ..kube.connection import connect
from ..kube.errors import UnexpectedAnswerError
from ..kube.paths import pods_path
from ..kube.pods import parse_pod
from ..model.errors import HostReadError
from ..planning.audit import Audited, VisiblePools, audit
from .claims import ClaimReader
from .containers import NodeState, requests_of
from .nodefacts import NodeFacts
from .planned import DeviceResources
from .podresources import PodResourcesClient, PodResourcesError

_COUNT = re.compile(r"[0-9]{1,6}", re.ASCII)


def audit_node(
    node_name: str,
    root: HostRoot,
    podresources_socket: Path,
    kubeconfig: Path | None,
    *,
    variables: Collection[str],
    with_planned: bool = False,
) -> tuple[Audited, ...]:
    """The node's containers with devices, those with findings first.

    Args:
        variables: names of the variables that size pools.
        with_planned: pods that ask for a plan too.

    Raises:
        HostReadError: the host or the kubelet cannot be read.
        KubeError: the API server cannot be asked.
    """
    root.require_sysfs()
    client = KubeClient(connect(kubeconfig), user_agent="cpuplan-audit")
    facts = NodeFacts(root, claimed=ClaimReader(client, node_name).devices_of)
    kubelet = PodResourcesClient(podresources_socket)
    resources = DeviceResources()
    try:
        assignments = kubelet.list_assignments()
    except PodResourcesError as error:
        raise HostReadError(str(error)) from error
    finally:
        kubelet.close()
    state = NodeState(facts.cpus(), facts.boot_id, assignments, resources)
    listed = client.list_objects(pods_path(), field_selector=f"spec.nodeName={node_name}", from_cache=True)
    audited = [
        found
        for content in listed.items
        for found in _audit_pod(content, facts, state, variables, with_planned=with_planned)
    ]
    return tuple(sorted(audited, key=lambda found: (not found.findings, found.name)))


def _audit_pod(
    content: dict[str, Any],
    facts: NodeFacts,
    state: NodeState,
    variables: Collection[str],
    *,
    with_planned: bool,
) -> Iterator[Audited]:
    try:
        pod = parse_pod(content)
    except UnexpectedAnswerError:
        return
    if pod.is_ended or (is_planned(pod.annotations) and not with_planned):
        return
    if not any(state.resources.has_devices(container) for container in pod.containers):
        return
    for request in requests_of(pod, facts, state).requests:
        addresses = [worker.address for worker in request.workers if worker.address is not None]
        pools = visible_pools(_specification(content, request.container), variables)
        yield audit(request, facts.topology(addresses), pools)


def visible_pools(container: Mapping[str, Any], variables: Collection[str]) -> VisiblePools:
    """What a container's specification, as the API server sends it, says of its pools."""
    counts: dict[str, int | None] = {}
    for entry in container.get("env") or ():
        if isinstance(entry, dict) and entry.get("name") in variables:
            value = str(entry.get("value", ""))
            counts[str(entry["name"])] = int(value) if _COUNT.fullmatch(value) else None
    words = [str(word) for key in ("command", "args") for word in container.get(key) or ()]
    is_sized = any(Path(first).name == "cpuplan" and then == "run" for first, then in pairwise(words))
    return VisiblePools(counts, is_sized)


def _specification(content: dict[str, Any], name: str) -> Mapping[str, Any]:
    """The container's own part of the pod's specification."""
    spec = content.get("spec") or {}
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    return next((container for container in containers if container.get("name") == name), {})
