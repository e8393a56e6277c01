"""What keeps a container from starting, as the kubelet tells it: our init container's, and the agents' pods."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..kube import injected

_BACK_OFF = "ImagePullBackOff"

_FAILED_PULLS = frozenset({"ErrImagePull", "RegistryUnavailable", "SignatureValidationFailed"})
"""The kubelet goes from one of these to _BACK_OFF and back for as long as the image does not come: one state."""

_IMAGE_REASONS = frozenset({_BACK_OFF, "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"})
_OTHER_REASONS = frozenset({"CreateContainerConfigError", "CreateContainerError"})
# Source of the reasons: k8s.io/kubernetes/pkg/kubelet/images/types.go and container/sync_result.go


@dataclass(frozen=True, slots=True)
class StartFailure:
    """Why the injected init container does not start.

    Attributes:
        reason: the kubelet's word; ImagePullBackOff from the first failed pull on.
        image: that it was to run.
        is_about_image: the image is not there, else the container cannot be made from it.
    """

    reason: str
    image: str
    is_about_image: bool


@dataclass(frozen=True, slots=True)
class AgentPod:
    """An agent's pod; `trouble` is its phase and what it waits for, empty while it runs."""

    namespace: str
    name: str
    trouble: str


def init_failure(spec: Mapping[str, Any], status: Mapping[str, Any]) -> StartFailure | None:
    """What keeps the init container of our name from starting; None where nothing does, or it only takes its time."""
    reasons = [
        reason
        for name, reason in _waiting(status, "initContainerStatuses")
        if name == injected.NAME and reason in _IMAGE_REASONS | _OTHER_REASONS
    ]
    if not reasons:
        return None
    containers = {container.get("name"): container for container in spec.get("initContainers") or ()}
    image = str((containers.get(injected.NAME) or {}).get("image") or "")
    return StartFailure(reasons[0], image, reasons[0] in _IMAGE_REASONS)


def agent_pods(pods: Iterator[Mapping[str, Any]]) -> dict[str, AgentPod]:
    """The agent's pod of each node, the running one where there are two; without pods that are being deleted."""
    found: dict[str, AgentPod] = {}
    for content in pods:
        metadata, spec, status = content["metadata"], content.get("spec") or {}, content.get("status") or {}
        if "deletionTimestamp" in metadata:
            continue
        node = str(spec.get("nodeName") or _intended_node(spec))
        trouble = _trouble(status)
        if node not in found or not trouble:
            found[node] = AgentPod(str(metadata["namespace"]), str(metadata["name"]), trouble)
    return found


def _trouble(status: Mapping[str, Any]) -> str:
    phase = str(status.get("phase") or "Unknown")
    waiting = [
        reason for part in ("initContainerStatuses", "containerStatuses") for _, reason in _waiting(status, part)
    ]
    if phase == "Running" and not waiting:
        return ""
    unscheduled = [
        condition.get("reason")
        for condition in status.get("conditions") or ()
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False"
    ]
    words = (phase, *waiting, *unscheduled, status.get("reason"))
    return ", ".join(dict.fromkeys(str(word) for word in words if word))


def _waiting(status: Mapping[str, Any], part: str) -> Iterator[tuple[str, str]]:
    """Name and reason of each container that waits."""
    for entry in status.get(part) or ():
        waiting = (entry.get("state") or {}).get("waiting")
        if waiting is not None:
            reason = str(waiting.get("reason") or "waiting")
            yield str(entry.get("name")), _BACK_OFF if reason in _FAILED_PULLS else reason


def _intended_node(spec: Mapping[str, Any]) -> str:
    """The node that the DaemonSet controller made a pod for; empty where the pod does not say.

    Source: k8s.io/kubernetes/pkg/controller/daemon/util/daemonset_util.go, ReplaceDaemonSetPodNodeNameNodeAffinity
    """
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == "metadata.name" and field.get("values"):
                return str(field["values"][0])
    return ""
