"""A kubelet's PodResources socket for tests: a real gRPC server whose answers a test sets.

    with FakePodResources(folder / "kubelet.sock") as kubelet:
        kubelet.set_devices("default", "llm-0", "engine", {"nvidia.com/gpu": ["GPU-…"]})

`stop` removes the socket and `start` makes it anew: together a kubelet's restart.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import grpc

from cpuplan.agent.podresources_messages import LIST_METHOD, message_class


@dataclass(slots=True)
class _Container:
    devices: list[dict[str, Any]] = field(default_factory=list)
    cpu_ids: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Pod:
    containers: dict[str, _Container] = field(default_factory=dict)
    cpu_ids: list[int] = field(default_factory=list)


class FakePodResources:
    """Serves PodResources v1 List on a unix socket; use as a context manager. Safe from several threads."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self._lock = threading.Lock()
        self._pods: dict[tuple[str, str], _Pod] = {}
        self._ended: list[dict[str, Any]] = []
        self._failure: tuple[grpc.StatusCode, str] | None = None
        self._server: grpc.Server | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Makes the socket and answers on it."""
        self.socket.unlink(missing_ok=True)
        # The options keep a server in one process from sharing the port with another of the same name.
        server = grpc.server(ThreadPoolExecutor(max_workers=2), options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers((_Service(self._answer),))
        server.add_insecure_port(f"unix:{self.socket.absolute()}")
        server.start()
        self._server = server

    def stop(self) -> None:
        """Ends answering and removes the socket."""
        if self._server is not None:
            self._server.stop(grace=None).wait()
            self._server = None
        self.socket.unlink(missing_ok=True)

    def add_pod(self, namespace: str, pod: str, containers: Iterable[str] = ()) -> None:
        """Shows a pod whose containers have nothing (yet)."""
        with self._lock:
            known = self._pods.setdefault((namespace, pod), _Pod())
            for container in containers:
                known.containers.setdefault(container, _Container())

    def set_devices(self, namespace: str, pod: str, container: str, devices: Mapping[str, list[str]]) -> None:
        """Shows the container with these device ids per resource, each device as an entry of its own."""
        with self._lock:
            self._container(namespace, pod, container).devices = [
                {"resource_name": resource, "device_ids": [device]}
                for resource, ids in devices.items()
                for device in ids
            ]

    def set_cpu_ids(self, namespace: str, pod: str, container: str, cpu_ids: list[int]) -> None:
        """Shows the container with exclusive CPUs."""
        with self._lock:
            self._container(namespace, pod, container).cpu_ids = cpu_ids

    def set_pod_cpu_ids(self, namespace: str, pod: str, cpu_ids: list[int]) -> None:
        """Shows the pod with a pod-level allocation."""
        with self._lock:
            self._pods.setdefault((namespace, pod), _Pod()).cpu_ids = cpu_ids

    def remove_pod(self, namespace: str, pod: str) -> None:
        """Shows the pod no more."""
        with self._lock:
            self._pods.pop((namespace, pod), None)

    def end_pod(self, namespace: str, pod: str) -> None:
        """The pod has ended, but stays listed as it was, also beside a new pod of its name."""
        with self._lock:
            self._ended.append(_pod_message((namespace, pod), self._pods.pop((namespace, pod))))

    def fail(self, code: grpc.StatusCode, details: str = "") -> None:
        """Answers with an error from now on; `recover` ends it."""
        with self._lock:
            self._failure = (code, details)

    def recover(self) -> None:
        """Answers again."""
        with self._lock:
            self._failure = None

    def _container(self, namespace: str, pod: str, container: str) -> _Container:
        return self._pods.setdefault((namespace, pod), _Pod()).containers.setdefault(container, _Container())

    def _answer(self, _: Any, context: grpc.ServicerContext) -> Any:
        with self._lock:
            failure = self._failure
            pods = [*self._ended, *(_pod_message(key, pod) for key, pod in self._pods.items())]
        if failure is not None:
            context.abort(*failure)
        return message_class("ListPodResourcesResponse")(pod_resources=pods)


class _Service(grpc.GenericRpcHandler):
    """Routes the one method."""

    def __init__(self, answer: Callable[[Any, grpc.ServicerContext], Any]) -> None:
        self._handler = grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=message_class("ListPodResourcesRequest").FromString,
            response_serializer=message_class("ListPodResourcesResponse").SerializeToString,
        )

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return self._handler if handler_call_details.method == LIST_METHOD else None


def _pod_message(key: tuple[str, str], pod: _Pod) -> dict[str, Any]:
    return {
        "namespace": key[0],
        "name": key[1],
        "cpu_ids": list(pod.cpu_ids),
        "containers": [
            {
                "name": name,
                "devices": list(container.devices),
                "cpu_ids": list(container.cpu_ids),
            }
            for name, container in pod.containers.items()
        ],
    }
