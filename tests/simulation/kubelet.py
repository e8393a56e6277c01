"""A driver that plays one node's kubelet: heartbeats, devices, cgroups and the status of pods."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from cpuplan.kube.client import KubeClient
from cpuplan.kube.errors import ConflictError, KubeError, NotFoundError
from cpuplan.kube.paths import lease_path, leases_path, pod_path

RESOURCE = "nvidia.com/gpu"
LEASE_NAMESPACE = "kube-node-lease"
HEARTBEAT_SECONDS = 10.0
"""As a real kubelet's lease renewals (KubeletConfiguration nodeLeaseDurationSeconds / 4)."""

Json = dict[str, Any]


class DeviceAnswers(Protocol):
    """Where the kubelet's PodResources answers are set (tests/fakekubelet.py)."""

    def set_devices(self, namespace: str, pod: str, container: str, devices: Mapping[str, list[str]]) -> None:
        """Shows the container with these device ids per resource."""

    def remove_pod(self, namespace: str, pod: str) -> None:
        """Shows the pod no more."""


@dataclass(slots=True)
class SimulatedKubelet:
    """Plays the kubelet of one node whose trees are below `root`.

    Attributes:
        devices: ids of the node's GPUs; the lowest free ones go to the next container that asks.
        cpus: the node's shared pool, in kernel list format.
    """

    client: KubeClient
    node: str
    root: Path
    devices: tuple[str, ...]
    cpus: str
    cpu_count: int
    answers: DeviceAnswers
    _allocated: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def register(self) -> None:
        """Creates the node object, or finds it there, and reports it ready."""
        node: Json = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.node,
                "labels": {"kubernetes.io/hostname": self.node, "cpuplan.dev/simulated": "true"},
            },
            "spec": {"taints": [{"key": "cpuplan.dev/simulated", "value": "true", "effect": "NoSchedule"}]},
        }
        try:
            self.client.create("/api/v1/nodes", node)
        except ConflictError:
            self.client.get(f"/api/v1/nodes/{self.node}")
        amounts = {"cpu": str(self.cpu_count), "memory": "1024Gi", "pods": "110", RESOURCE: str(len(self.devices))}
        now = _now()
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "simulated"}
        self.client.merge_patch(
            f"/api/v1/nodes/{self.node}/status",
            {
                "status": {
                    "capacity": amounts,
                    "allocatable": amounts,
                    "conditions": [{**condition, "lastHeartbeatTime": now, "lastTransitionTime": now}],
                }
            },
        )
        self.beat()

    def beat(self) -> None:
        """Renews the node's lease, by which the node controller sees it alive."""
        spec = {"holderIdentity": self.node, "leaseDurationSeconds": 40, "renewTime": _now_micro()}
        try:
            self.client.merge_patch(lease_path(LEASE_NAMESPACE, self.node), {"spec": spec})
        except NotFoundError:
            lease: Json = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self.node, "namespace": LEASE_NAMESPACE},
                "spec": spec,
            }
            self.client.create(leases_path(LEASE_NAMESPACE), lease)

    def unregister(self) -> None:
        """Deletes the node object; its pods go with it."""
        for path in (f"/api/v1/nodes/{self.node}", lease_path(LEASE_NAMESPACE, self.node)):
            try:
                self.client.delete(path)
            except NotFoundError:
                continue

    def sync(self, pod: Json) -> None:
        """Does for the pod what a kubelet would do next: devices, cgroups, running; or its end."""
        metadata = pod["metadata"]
        with self._lock:
            if metadata.get("deletionTimestamp"):
                self._end(pod)
            elif pod.get("status", {}).get("phase", "Pending") == "Pending":
                self._start(pod)

    def forget(self, pod: Json) -> None:
        """Frees what a deleted pod held."""
        with self._lock:
            self._free(pod)

    def _start(self, pod: Json) -> None:
        namespace, name, uid = (pod["metadata"][key] for key in ("namespace", "name", "uid"))
        if not self._allocate(pod):
            self._report(namespace, name, {"phase": "Failed", "reason": "UnexpectedAdmissionError"})
            return
        for container in pod["spec"]["containers"]:
            devices = self._allocated.get((uid, container["name"]), [])
            self.answers.set_devices(namespace, name, container["name"], {RESOURCE: devices} if devices else {})
        for container in pod["spec"]["containers"]:
            self._make_cgroup(pod, container)
        self._report(namespace, name, self._running_status(pod))

    def _allocate(self, pod: Json) -> bool:
        uid = pod["metadata"]["uid"]
        for container in pod["spec"]["containers"]:
            key = (uid, container["name"])
            wanted = int(container.get("resources", {}).get("limits", {}).get(RESOURCE, 0))
            if key in self._allocated or not wanted:
                continue
            used = {device for held in self._allocated.values() for device in held}
            free = [device for device in self.devices if device not in used]
            if len(free) < wanted:
                return False
            self._allocated[key] = free[:wanted]
        return True

    def _make_cgroup(self, pod: Json, container: Json) -> None:
        qos = pod.get("status", {}).get("qosClass", "BestEffort").lower()
        parent = self.root / "sys/fs/cgroup/kubepods"
        middle = parent if qos == "guaranteed" else parent / qos
        folder = middle / f"pod{pod['metadata']['uid']}" / _container_id(pod, container)
        folder.mkdir(parents=True, exist_ok=True)
        limit = container.get("resources", {}).get("limits", {}).get("cpu")
        (folder / "cpu.max").write_text(f"{_quota_us(limit)} 100000\n")
        (folder / "cpuset.cpus.effective").write_text(f"{self.cpus}\n")

    def _running_status(self, pod: Json) -> Json:
        now = _now()
        common = {"ready": True, "restartCount": 0, "image": "simulated", "imageID": "simulated"}
        ended = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}}
        return {
            "phase": "Running",
            "startTime": now,
            "podIP": "192.0.2.1",
            "podIPs": [{"ip": "192.0.2.1"}],
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": now}
                for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "initContainerStatuses": [
                {**common, "name": c["name"], "containerID": f"containerd://{_container_id(pod, c)}", "state": ended}
                for c in pod["spec"].get("initContainers", [])
            ],
            "containerStatuses": [
                {
                    **common,
                    "name": c["name"],
                    "started": True,
                    "containerID": f"containerd://{_container_id(pod, c)}",
                    "state": {"running": {"startedAt": now}},
                }
                for c in pod["spec"]["containers"]
            ],
        }

    def _end(self, pod: Json) -> None:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        self._free(pod)
        try:
            self.client.delete(f"{pod_path(namespace, name)}?gracePeriodSeconds=0")
        except NotFoundError:
            return

    def _free(self, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        for key in [key for key in self._allocated if key[0] == uid]:
            del self._allocated[key]
        self.answers.remove_pod(pod["metadata"]["namespace"], pod["metadata"]["name"])

    def _report(self, namespace: str, name: str, status: Json) -> None:
        try:
            self.client.merge_patch(f"{pod_path(namespace, name)}/status", {"status": status})
        except KubeError as error:
            if not isinstance(error, NotFoundError):
                raise


def _container_id(pod: Json, container: Json) -> str:
    return hashlib.sha256(f"{pod['metadata']['uid']}/{container['name']}".encode()).hexdigest()


def _quota_us(limit: str | None) -> str:
    if limit is None:
        return "max"
    cpus = float(limit[:-1]) / 1000 if limit.endswith("m") else float(limit)
    return str(round(cpus * 100_000))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _now_micro() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
