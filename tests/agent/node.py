"""A node for tests: a machine's trees, a fake kubelet, a fake API server, and the product's agent on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpuplan.agent.claims import DEFAULT_DEVICE_DRIVERS
from cpuplan.agent.process import Assembled, assemble
from cpuplan.agent.settings import AgentSettings
from cpuplan.host.root import HostRoot
from cpuplan.kube.annotations import PLAN
from cpuplan.kube.connection import Connection
from cpuplan.kube.paths import pod_path
from cpuplan.kube.podwatch import PodWatch
from cpuplan.model.podplan import PodPlan
from cpuplan.process.address import Address
from tests.fakeapi import FakeApi, Request
from tests.fakekubelet import FakePodResources
from tests.machines import gpu_uuid

NODE = "n1"
GPU = "nvidia.com/gpu"


class ManualClock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Lets time pass."""
        self.now += seconds


def settings_for(root: HostRoot, socket: Path, **changes: Any) -> AgentSettings:
    """The agent's settings on these trees."""
    settings: dict[str, Any] = {
        "node_name": NODE,
        "root": root,
        "podresources_socket": socket,
        "metrics_address": Address("127.0.0.1", 0),
        "kubeconfig": None,
        "log_level": "info",
        "device_resources": ("nvidia.com/gpu", "nvidia.com/mig-*", "amd.com/gpu"),
        "device_drivers": DEFAULT_DEVICE_DRIVERS,
        "reserved_cpus": frozenset(),
        "most_pinned_per_pod": None,
        "topology_override": None,
        "nvml_library": None,
        "resync_seconds": 30.0,
        "settle_seconds": 10.0,
        "start_jitter_seconds": 0.0,
        "is_audit_served": True,
        "is_explanation_served": True,
    }
    return AgentSettings(**{**settings, **changes})


@dataclass(slots=True)
class TestNode:
    """Everything of one node; `turn` lists the pods anew and lets the agent plan once, in the test's own thread."""

    __test__ = False

    machine: str
    api: FakeApi
    kubelet: FakePodResources
    root: HostRoot
    connection: Connection
    clock: ManualClock
    assembled: Assembled
    settings: AgentSettings

    def restart_agent(self, **changes: Any) -> None:
        """A new agent process: nothing is remembered but what stands on the pods."""
        self.settings = settings_for(self.root, self.kubelet.socket, **changes)
        self.assembled = assemble(self.settings, self.connection, monotonic=self.clock)

    @property
    def watch(self) -> PodWatch:
        """The agent's view of its pods."""
        return self.assembled.watch

    def turn(self) -> list[Request]:
        """One turn of the agent; the patches it made."""
        before = len(self.api.requests_of("PATCH"))
        self.watch._list()
        self.assembled.agent.replan()
        return self.api.requests_of("PATCH")[before:]

    def add_pod(
        self,
        name: str,
        *,
        setting: str | None = "auto",
        gpus: Mapping[str, list[str]] | None = None,
        created: str = "2026-01-01T00:00:00Z",
        cpu_limit: str | None = None,
        annotations: Mapping[str, str] | None = None,
        node: str = NODE,
    ) -> None:
        """A pod whose containers (by name) have the GPUs at these addresses, shown by the kubelet too."""
        assigned = {"engine": []} if gpus is None else dict(gpus)
        own = {} if setting is None else {"step_thread_core": setting}
        containers = []
        for container, addresses in assigned.items():
            limits: dict[str, str] = {GPU: str(len(addresses))} if addresses else {}
            if cpu_limit is not None:
                limits["cpu"] = cpu_limit
            containers.append({"name": container, "resources": {"limits": limits}})
            uuids = [gpu_uuid(self.machine, address) for address in addresses]
            self.kubelet.set_devices("default", name, container, {GPU: uuids} if uuids else {})
        self.api.put(
            pod_path("default", name),
            {
                "metadata": {"creationTimestamp": created, "annotations": {**own, **(annotations or {})}},
                "spec": {"nodeName": node, "containers": containers},
                "status": {"phase": "Pending"},
            },
        )

    def annotate(self, name: str, **annotations: str | None) -> None:
        """As `kubectl annotate`: keys with `_` for the dots and slashes are not needed, only ours are used."""
        self.patch(name, {"metadata": {"annotations": annotations}})

    def patch(self, name: str, content: dict[str, Any]) -> None:
        """Changes the pod as somebody else would."""
        self.api.patch(pod_path("default", name), content)

    def end_pod(self, name: str, phase: str = "Succeeded") -> None:
        """All containers of the pod have ended; the object stays."""
        self.patch(name, {"status": {"phase": phase}})

    def remove_pod(self, name: str) -> None:
        """The pod is gone."""
        self.api.remove(pod_path("default", name))
        self.kubelet.remove_pod("default", name)

    def annotations(self, name: str) -> dict[str, str]:
        """All annotations of the pod."""
        pod = self.api.object(pod_path("default", name))
        assert pod is not None
        return dict(pod["metadata"].get("annotations", {}))

    def labels(self, name: str) -> dict[str, str]:
        """All labels of the pod."""
        pod = self.api.object(pod_path("default", name))
        assert pod is not None
        return dict(pod["metadata"].get("labels", {}))

    def plan(self, name: str) -> PodPlan:
        """The plan that stands on the pod."""
        return PodPlan.from_json(self.annotations(name)[PLAN])

    def status(self, name: str) -> str:
        """`cpuplan.dev/status` of the pod."""
        return self.annotations(name)["cpuplan.dev/status"]

    def run_container(self, name: str, container: str, *, cpuset: str, quota: str = "max 100000") -> None:
        """The container runs, and its cgroup (v2, cgroupfs driver) grants this."""
        pod = self.api.object(pod_path("default", name))
        assert pod is not None
        uid = pod["metadata"]["uid"]
        container_id = f"{uid}-{container}".replace("-", "")
        folder = self.root.cgroup / "kubepods" / f"pod{uid}" / container_id
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpuset.cpus.effective").write_text(f"{cpuset}\n")
        (folder / "cpu.max").write_text(f"{quota}\n")
        state = {"name": container, "containerID": f"containerd://{container_id}", "state": {"running": {}}}
        others = [entry for entry in pod["status"].get("containerStatuses", []) if entry["name"] != container]
        self.patch(name, {"status": {"phase": "Running", "containerStatuses": [*others, state]}})

    def metric(self, name: str, **labels: str) -> float:
        """The value of one of the agent's metrics."""
        value = self.assembled.metrics.registry.get_sample_value(f"cpuplan_agent_{name}", labels)
        assert value is not None, (name, labels)
        return value


MakeNode = Callable[..., TestNode]


def as_patch(request: Request) -> str:
    """A patch's metadata as text, for comparison."""
    return json.dumps(request.body["metadata"], sort_keys=True)
