"""A pod as the agent needs it: parsed once from the API's JSON, everything else dropped.

Lenient where a pod may be odd, strict only in what gives it an identity.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from kubernetes.utils.quantity import parse_quantity

from ..model.pools import VisiblePools, visible_pools
from .annotations import MANAGED_LABEL, PREFIX, SETTING
from .answers import JsonObject
from .errors import UnexpectedAnswerError

MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
"""On the API object of a static pod: the UID that the kubelet uses for it."""

_MOST = 1 << 40
"""No node has this many CPUs or devices; larger text is not expanded into a number."""


class ContainerKind(Enum):
    """Which list of the pod a container stands in, and how it runs."""

    REGULAR = "regular"
    SIDECAR = "sidecar"
    """An init container with restartPolicy Always: runs beside the regular ones."""
    INIT = "init"


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """A container's use of one of the pod's resource claims; `request` None = all of the claim's devices."""

    claim: str
    request: str | None


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a pod, spec and status together.

    Attributes:
        cpu_limit: limits.cpu in CPUs, None without one.
        extended: count per extended resource, as limited (requests equal limits there).
        container_id: the runtime's id without its scheme, None before it was created.
        is_running: the kubelet reports it as running now.
        is_ready: it passes its readiness probe; without one it does as long as it runs.
        has_ended: it has ended and is never started again, while others of the pod may go on.
        restart_count: how often the kubelet restarted it.
        message: the termination message of its last end, None before.
        exit_code: of its last end, None before.
        pools: what its specification says of its thread pools.
    """

    name: str
    kind: ContainerKind
    cpu_limit: float | None
    extended: Mapping[str, int]
    claims: tuple[ClaimUse, ...]
    container_id: str | None
    is_running: bool
    is_ready: bool
    has_ended: bool
    restart_count: int
    message: str | None
    exit_code: int | None
    pools: VisiblePools


@dataclass(frozen=True, slots=True)
class ExtendedResourceClaim:
    """The claim that the scheduler made for extended resources backed by DRA.

    `requests` maps (container, resource) to the claim's request name.
    """

    claim_name: str
    requests: Mapping[tuple[str, str], str]


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of the node.

    Attributes:
        uid: the API object's UID.
        cgroup_uid: the UID in the names of its cgroups; a static pod's differs from its mirror's.
        created: creationTimestamp, RFC 3339 in UTC (sorts as text).
        annotations: only `step_thread_core` and those under `cpuplan.dev/`.
        managed_label: value of the label `cpuplan.dev/managed`, None without it.
        cpu_limit: the pod-level limit in CPUs, None without one.
        claim_names: the ResourceClaim object for each name under spec.resourceClaims, where known; None where the pod
            needs none.
    """

    namespace: str
    name: str
    uid: str
    cgroup_uid: str
    resource_version: str
    created: str
    node_name: str
    phase: str
    is_deleting: bool
    annotations: Mapping[str, str]
    managed_label: str | None
    cpu_limit: float | None
    containers: tuple[Container, ...]
    claim_names: Mapping[str, str | None]
    extended_claim: ExtendedResourceClaim | None

    @property
    def is_ended(self) -> bool:
        """No container of it will ever run again."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def key(self) -> str:
        """namespace/name, for logs."""
        return f"{self.namespace}/{self.name}"

    def container(self, name: str) -> Container | None:
        """The container of that name."""
        return next((container for container in self.containers if container.name == name), None)


def parse_pod(content: JsonObject) -> Pod:
    """The pod in the API's JSON.

    Raises:
        UnexpectedAnswerError: it has no name, namespace or UID.
    """
    metadata = _mapping(content.get("metadata"))
    spec = _mapping(content.get("spec"))
    status = _mapping(content.get("status"))
    identity = [metadata.get(key) for key in ("namespace", "name", "uid")]
    if not all(isinstance(part, str) and part for part in identity):
        raise UnexpectedAnswerError(f"a pod without namespace, name or uid: {identity}")
    namespace, name, uid = (str(part) for part in identity)
    annotations = _strings(metadata.get("annotations"))
    return Pod(
        namespace=namespace,
        name=name,
        uid=uid,
        cgroup_uid=annotations.get(MIRROR_ANNOTATION) or uid,
        resource_version=str(metadata.get("resourceVersion", "")),
        created=str(metadata.get("creationTimestamp", "")),
        node_name=str(spec.get("nodeName", "")),
        phase=str(status.get("phase", "")),
        is_deleting=bool(metadata.get("deletionTimestamp")),
        annotations={key: value for key, value in annotations.items() if key == SETTING or key.startswith(PREFIX)},
        managed_label=_strings(metadata.get("labels")).get(MANAGED_LABEL),
        cpu_limit=_cpus(_mapping(_mapping(spec.get("resources")).get("limits")).get("cpu")),
        containers=_containers(spec, status),
        claim_names=_claim_names(spec, status),
        extended_claim=_extended_claim(status),
    )


def _containers(spec: JsonObject, status: JsonObject) -> tuple[Container, ...]:
    statuses = {
        str(entry.get("name")): entry
        for key in ("initContainerStatuses", "containerStatuses")
        for entry in _mappings(status.get(key))
    }
    inits = [
        (entry, ContainerKind.SIDECAR if entry.get("restartPolicy") == "Always" else ContainerKind.INIT)
        for entry in _mappings(spec.get("initContainers"))
    ]
    regular = [(entry, ContainerKind.REGULAR) for entry in _mappings(spec.get("containers"))]
    policy = str(spec.get("restartPolicy"))
    return tuple(
        _container(entry, kind, _mapping(statuses.get(str(entry.get("name")))), pod_restart_policy=policy)
        for entry, kind in inits + regular
    )


def _container(spec: JsonObject, kind: ContainerKind, status: JsonObject, *, pod_restart_policy: str) -> Container:
    resources = _mapping(spec.get("resources"))
    limits = _mapping(resources.get("limits"))
    container_id = status.get("containerID")
    state = _mapping(status.get("state"))
    ended = _mapping(state.get("terminated")) or _mapping(_mapping(status.get("lastState")).get("terminated"))
    restarts = status.get("restartCount")
    exit_code = ended.get("exitCode")
    return Container(
        name=str(spec.get("name", "")),
        kind=kind,
        cpu_limit=_cpus(limits.get("cpu")),
        extended={
            key: int(count)
            for key, value in limits.items()
            if "/" in key and (count := _quantity(value)) is not None and count >= 1
        },
        claims=tuple(
            ClaimUse(str(entry["name"]), str(entry["request"]) if entry.get("request") else None)
            for entry in _mappings(resources.get("claims"))
            if entry.get("name")
        ),
        container_id=container_id.rpartition("//")[2] or None if isinstance(container_id, str) else None,
        is_running="running" in state,
        is_ready=status.get("ready") is True,
        has_ended=kind is ContainerKind.REGULAR and _has_ended(spec, state, pod_restart_policy),
        restart_count=restarts if isinstance(restarts, int) else 0,
        message=_text(ended.get("message")),
        exit_code=exit_code if isinstance(exit_code, int) else None,
        pools=_pools(spec),
    )


def _pools(spec: JsonObject) -> VisiblePools:
    """What the environment and the command line of a container's specification say of its pools."""
    variables = {str(entry.get("name")): _text(entry.get("value")) for entry in _mappings(spec.get("env"))}
    parts = [part for part in (spec.get("command"), spec.get("args")) if isinstance(part, list)]
    words = [str(word) for part in parts for word in part]
    return visible_pools(variables, words, has_hidden_variables=bool(spec.get("envFrom")))


def _has_ended(spec: JsonObject, state: JsonObject, pod_restart_policy: str) -> bool:
    """Whether no policy starts a regular container again; one with rules of its own (1.34) may always be.

    Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy
    """
    ended = _mapping(state.get("terminated"))
    if not ended or spec.get("restartPolicyRules"):
        return False
    policy = spec.get("restartPolicy") or pod_restart_policy
    return policy == "Never" or (policy == "OnFailure" and ended.get("exitCode") == 0)


def _claim_names(spec: JsonObject, status: JsonObject) -> dict[str, str | None]:
    """By name under spec.resourceClaims; an entry of the status without an object's name says that none was needed."""
    direct = {str(entry.get("name")): entry.get("resourceClaimName") for entry in _mappings(spec.get("resourceClaims"))}
    made = {
        str(entry.get("name")): entry.get("resourceClaimName")
        for entry in _mappings(status.get("resourceClaimStatuses"))
    }
    named = {name: str(claim) for name, claim in {**direct, **made}.items() if claim}
    return {**dict.fromkeys(made), **named}


def _extended_claim(status: JsonObject) -> ExtendedResourceClaim | None:
    content = _mapping(status.get("extendedResourceClaimStatus"))
    claim_name = content.get("resourceClaimName")
    if not isinstance(claim_name, str) or not claim_name:
        return None
    return ExtendedResourceClaim(
        claim_name,
        {
            (str(entry.get("containerName")), str(entry.get("resourceName"))): str(entry.get("requestName"))
            for entry in _mappings(content.get("requestMappings"))
        },
    )


def _cpus(value: Any) -> float | None:
    quantity = _quantity(value)
    return None if quantity is None or quantity <= 0 else float(quantity)


def _quantity(value: Any) -> Decimal | None:
    if not isinstance(value, (str, int, float)):
        return None
    try:
        quantity = parse_quantity(value)  # type: ignore[no-untyped-call]
    except ValueError:
        return None
    return quantity if quantity.is_finite() and quantity.copy_abs() < _MOST else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _mapping(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _mappings(value: Any) -> list[JsonObject]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _strings(value: Any) -> dict[str, str]:
    return {key: entry for key, entry in _mapping(value).items() if isinstance(entry, str)}
