"""What a node asks to be planned: one planned container, its devices, its CPUs."""

from __future__ import annotations

from dataclasses import dataclass

from .podplan import ContainerPlan
from .withheld import Withheld


@dataclass(frozen=True, slots=True)
class PodRef:
    """A pod's identity; `created` is its creation time as the API server writes it (RFC 3339, UTC)."""

    namespace: str
    name: str
    uid: str
    created: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class WorkerDevice:
    """The device one worker drives: PCI address and the kubelet's device id, None where unknown."""

    address: str | None
    device_id: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a deployment cannot be planned now: a code of model/reasons.py and the sentence."""

    reason: str
    why: str


@dataclass(frozen=True, slots=True)
class DeploymentRequest:
    """One planned container of a pod, ready to be planned.

    Attributes:
        pod: whose container it is.
        container: the container's name.
        position: the container's index in the pod's spec; orders the containers of one pod.
        setting: the user's `step_thread_core`, unparsed.
        workers: the device of each worker, in worker order; empty without a worker.
        devices: ids of all devices of the container, as the kubelet names them.
        mask: CPUs that the container may run on; empty where they are not known yet.
        quota: the tightest CPU limit in CPUs, None where there is none.
        refusal: why it cannot be planned now, None when it can.
        previous: the plan on the pod, where it was made for this pod and this boot of the node.
        withheld: CPUs that the container may run on and no plan may use.
    """

    pod: PodRef
    container: str
    position: int
    setting: str
    workers: tuple[WorkerDevice, ...]
    devices: tuple[str, ...]
    mask: frozenset[int]
    quota: float | None
    refusal: Refusal | None = None
    previous: ContainerPlan | None = None
    withheld: tuple[Withheld, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """Pod UID and container name: what tells deployments of a node apart."""
        return (self.pod.uid, self.container)

    @property
    def order(self) -> tuple[str, str, int]:
        """Sorts newcomers: creation time, UID, then the container's place in its pod."""
        return (self.pod.created, self.pod.uid, self.position)

    def __str__(self) -> str:
        return f"{self.pod} container {self.container}"
