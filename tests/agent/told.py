"""The pods of a random story as the story knows them, and what it may choose for them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.agent.node import GPU, TestNode
from tests.machines import gpu_uuid

# What is valid comes often, so that many plans stand beside each other; and everything else now and then.
SETTINGS = (*("auto",) * 14, *"0125", "10", "17", "off", "off", "63", "-1", "banana", "", "4.0", "9999")
WORKERS = (*(None,) * 12, "0", "0,0", "0,1", "-", "-,-", "0,-", "1,0", "7", "x", "", "0,0,0,0,0,0")
CONTAINERS = (*(None,) * 12, "engine", "engine", "helper", "third", "nobody", "")
CPU_LIMITS = (None, None, "500m", "1", "2500m", "8", "64")
QUOTAS = ("max 100000", "50000 100000", "150000 100000", "800000 100000", "100000", "junk", "")
CREATED = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z")

WORKERS_KEY, CONTAINER_KEY = "cpuplan.dev/workers", "cpuplan.dev/container"
USER_KEYS = ("step_thread_core", WORKERS_KEY, CONTAINER_KEY, "cpuplan.dev/selftest")


@dataclass(slots=True)
class ToldPod:
    """What the story has said of a pod.

    Attributes:
        gpus: per container, the addresses of its GPUs.
        is_hidden: the kubelet does not show its devices yet.
        is_running: per container that ever ran, whether it does.
        cpusets, quotas: per container that ever ran, the CPUs and the quota that its cgroup grants.
        exclusive: per container, exclusive CPUs that the kubelet shows; empty: none.
    """

    name: str
    uid: str
    gpus: dict[str, list[str]]
    setting: str | None
    workers: str | None = None
    container: str | None = None
    is_ended: bool = False
    is_leaving: bool = False
    is_hidden: bool = False
    is_running: dict[str, bool] = field(default_factory=dict)
    cpusets: dict[str, frozenset[int]] = field(default_factory=dict)
    quotas: dict[str, str] = field(default_factory=dict)
    exclusive: dict[str, frozenset[int]] = field(default_factory=dict)

    @property
    def is_planned(self) -> bool:
        """Whether it asks for a plan and has not ended."""
        return self.setting is not None and not self.is_ended

    def show_devices(self, node: TestNode, *, is_shown: bool) -> None:
        """Lets the kubelet show the devices of all its containers, or none of them yet."""
        self.is_hidden = not is_shown
        for container, addresses in self.gpus.items():
            uuids = [gpu_uuid(node.machine, address) for address in addresses] if is_shown else []
            node.kubelet.set_devices("default", self.name, container, {GPU: uuids} if uuids else {})


def annotations_of_user(pod: ToldPod) -> dict[str, str]:
    """The annotations by which the pod asks, beside `step_thread_core`."""
    chosen = {WORKERS_KEY: pod.workers, CONTAINER_KEY: pod.container}
    return {key: text for key, text in chosen.items() if text is not None}
