"""A pod's plan volume in a folder, renewed as the kubelet renews it, on a described machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from cpuplan.host.root import HostRoot
from cpuplan.host.sysfs import read_topology
from cpuplan.kube.annotations import next_plan
from cpuplan.model.podplan import PodPlan
from cpuplan.model.request import DeploymentRequest, PodRef, WorkerDevice
from cpuplan.model.topology import HostTopology
from cpuplan.planning.ledger import plan_node
from tests.machines import boot_id, describe

POD_UID = "8a0c3a0e-5f4e-4a57-a6a1-0f4a3a5d9a11"


@dataclass(frozen=True, slots=True)
class PodVolume:
    """The folder that stands for /etc/cpuplan."""

    folder: Path

    def publish(self, text: str, uid: str = POD_UID) -> None:
        """Renews both files at once: a new folder, then one rename of the link to it, as the kubelet does."""
        number = sum(1 for _ in self.folder.glob("..2*"))
        fresh = self.folder / f"..2026_{number}"
        fresh.mkdir(parents=True)
        (fresh / "plan").write_text(text, encoding="utf-8")
        (fresh / "uid").write_text(uid, encoding="utf-8")
        link = self.folder / "..data_tmp"
        link.symlink_to(fresh.name)
        link.rename(self.folder / "..data")
        for name in ("plan", "uid"):
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")

    def publish_plan(self, plan: PodPlan) -> None:
        """Renews the files with a plan."""
        self.publish(plan.to_json())

    def publish_nothing(self) -> None:
        """The volume of a pod that has no plan yet, or none any more."""
        self.publish("")


def plan_of_pod(
    machine: str,
    root: HostRoot,
    *,
    gpus: tuple[int, ...] = (0,),
    quota: float | None = None,
    setting: str = "auto",
    containers: tuple[str, ...] = ("engine",),
    topology: HostTopology | None = None,
) -> PodPlan:
    """The plan that the ledger makes for one pod alone on a described machine, as its agent publishes it.

    Args:
        machine: the machine's name; its trees are under `root`.
        gpus: the places of the GPUs of each container among the machine's.
        topology: what the agent believes of the machine; None: its sysfs.
    """
    addresses = describe(machine).gpu_addresses
    pod = PodRef("default", "llm-0", POD_UID, "2026-12-01T10:00:00Z")
    topology = topology or read_topology(root)
    requests = [
        DeploymentRequest(
            pod=pod,
            container=container,
            position=position,
            setting=setting,
            workers=tuple(WorkerDevice(addresses[gpu]) for gpu in gpus),
            devices=tuple(addresses[gpu] for gpu in gpus),
            mask=topology.online,
            quota=quota,
        )
        for position, container in enumerate(containers)
    ]
    plans = plan_node(requests, topology)
    fresh = PodPlan(0, POD_UID, boot_id(machine), "gpu-1", tuple((name, plans[POD_UID, name]) for name in containers))
    return next_plan(None, fresh)


def next_generation(plan: PodPlan) -> PodPlan:
    """The same plan, published once more."""
    return replace(plan, generation=plan.generation + 1)
