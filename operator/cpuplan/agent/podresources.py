"""What the kubelet assigned: devices and exclusive CPUs per container, from its PodResources socket.

The answer has no pod UIDs, may list pods that ended (before Kubernetes 1.34), lists no ordinary init
containers, repeats a device once per NUMA node and shows a pod before its devices are allocated. It is made
into values here, as it is; who is meant is decided by the caller, who knows the live pods. Its NUMA nodes are left
out (sysfs has them for all devices alike), and so are its resource claims: it shows all devices of a claim, which of
them one container got stands only in the claim itself (`claims`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message

from ..model.cpulist import MAX_CPU
from .podresources_messages import LIST_METHOD, message_class

DEADLINE_SECONDS = 10.0
"""The kubelet answers within milliseconds; while it starts it may hold its locks for seconds."""

MOST_ANSWER_BYTES = 16 << 20
"""As the kubelet's own clients allow; gRPC's default of 4 MiB is too little for large nodes."""

_OPTIONS = (
    # Without it the authority is the socket's path, which the kubelet's HTTP/2 server refuses.
    ("grpc.default_authority", "localhost"),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", MOST_ANSWER_BYTES),
    # Channels to a socket of the same name must not share a connection that has failed.
    ("grpc.use_local_subchannel_pool", 1),
)


class PodResourcesError(Exception):
    """The kubelet's list cannot be had now; the text is one sentence for people."""


@dataclass(frozen=True, slots=True)
class AssignedDevice:
    """A device of a device plugin."""

    resource: str
    device_id: str


@dataclass(frozen=True, slots=True)
class ContainerAssignment:
    """What one container was given; devices by resource and id, `cpu_ids` only exclusive CPUs."""

    devices: tuple[AssignedDevice, ...]
    cpu_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class PodAssignment:
    """What one pod was given.

    Attributes:
        cpu_ids: CPUs of a pod-level allocation, those of its exclusive containers included; else empty.
        containers: by container name, sidecars included, ordinary init containers never.
    """

    cpu_ids: frozenset[int]
    containers: Mapping[str, ContainerAssignment]


Assignments = Mapping[tuple[str, str], tuple[PodAssignment, ...]]
"""By namespace and name; more than one where an ended pod and its namesake are both listed."""


class PodResourcesClient:
    """Asks one kubelet; connects anew after every failure, so that a restarted kubelet is found at once."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._channel: grpc.Channel | None = None

    def list_assignments(self) -> Assignments:
        """What the kubelet assigned to the pods that it knows.

        Raises:
            PodResourcesError: there is no socket, no answer in time, or an answer that cannot be read.
        """
        if not self._socket.exists():
            self.close()
            raise PodResourcesError(
                f"the kubelet's PodResources socket {self._socket} does not exist; expected its directory to be "
                "mounted (see --podresources-socket) and the kubelet to run"
            )
        if self._channel is None:
            self._channel = grpc.insecure_channel(f"unix:{self._socket.absolute()}", options=_OPTIONS)
        call = self._channel.unary_unary(
            LIST_METHOD,
            request_serializer=message_class("ListPodResourcesRequest").SerializeToString,
            response_deserializer=message_class("ListPodResourcesResponse").FromString,
        )
        try:
            answer = call(message_class("ListPodResourcesRequest")(), timeout=DEADLINE_SECONDS)
        except grpc.RpcError as error:
            self.close()
            raise PodResourcesError(_sentence(self._socket, error)) from error
        return parse_assignments(answer)

    def close(self) -> None:
        """Closes the connection; the next question opens one again."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def parse_assignments(answer: Message) -> Assignments:
    """The assignments in a ListPodResourcesResponse."""
    found: dict[tuple[str, str], tuple[PodAssignment, ...]] = {}
    content: Any = answer
    for pod in content.pod_resources:
        key = (pod.namespace, pod.name)
        assignment = PodAssignment(
            _cpus(pod.cpu_ids), {container.name: _container(container) for container in pod.containers}
        )
        if assignment not in found.get(key, ()):
            found[key] = (*found.get(key, ()), assignment)
    return found


def _container(content: Any) -> ContainerAssignment:
    devices = {(entry.resource_name, device_id) for entry in content.devices for device_id in entry.device_ids}
    return ContainerAssignment(tuple(AssignedDevice(*key) for key in sorted(devices)), _cpus(content.cpu_ids))


def _cpus(ids: Iterable[int]) -> frozenset[int]:
    """What can be a CPU of Linux; a plan that names another could not be read back."""
    return frozenset(cpu for cpu in ids if 0 <= cpu <= MAX_CPU)


def _sentence(socket: Path, error: grpc.RpcError) -> str:
    code = error.code() if isinstance(error, grpc.Call) else None
    details = (error.details() or "").split("\n", 1)[0] if isinstance(error, grpc.Call) else str(error)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"the kubelet at {socket} did not answer within {DEADLINE_SECONDS:g} s"
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return f"the kubelet at {socket} has no PodResources v1 API (Kubernetes 1.20 or later has it): {details}"
    name = "no code" if code is None else code.name.lower().replace("_", "-")
    return f"the kubelet at {socket} did not list its pods' resources ({name}): {details}"
