"""A container's devices: matched with what the kubelet and the claims say, and placed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..host.devices import PlacedDevice, UnplacedDevice
from ..kube.pods import Container, Pod
from ..model import reasons
from ..model.podplan import ContainerPlan
from ..model.request import Refusal, WorkerDevice
from .claims import ClaimedAddress, NotAllocated
from .planned import DeviceResources, PlannedContainers
from .podresources import Assignments, PodAssignment
from .workers import in_address_order


class DeviceSources(Protocol):
    """Where facts about devices come from."""

    def place(self, device_id: str) -> PlacedDevice | UnplacedDevice:
        """Where a device is."""

    def claimed(self, pod: Pod, container: Container) -> tuple[ClaimedAddress, ...] | NotAllocated:
        """The devices that a container got through resource claims."""


@dataclass(frozen=True, slots=True)
class FoundDevices:
    """A container's devices in address order; those that could not be placed; or why they are not known yet.

    `sources` says, for each device that was placed, what names its address; `undecided` are claimed devices of which
    it is not known whether they are GPUs: they count as none.
    """

    devices: tuple[WorkerDevice, ...] = ()
    sources: tuple[tuple[WorkerDevice, str], ...] = ()
    unplaced: tuple[UnplacedDevice, ...] = ()
    waiting: Refusal | None = None
    undecided: tuple[UnplacedDevice, ...] = ()


class PodDevices:
    """What the kubelet assigned to one pod.

    Args:
        containers: the planned ones.
        assignments: of all pods, None while the kubelet cannot be asked.
    """

    def __init__(
        self,
        pod: Pod,
        containers: Sequence[Container],
        *,
        assignments: Assignments | None,
        resources: DeviceResources,
        sources: DeviceSources,
    ) -> None:
        self._pod = pod
        self._is_answered = assignments is not None
        self._candidates = () if assignments is None else assignments.get((pod.namespace, pod.name), ())
        self._sources = sources
        self._asked = {container.name: _plugin_devices(pod, container, resources) for container in containers}
        self.assignment = self._matching()

    def find(self, container: Container, previous: ContainerPlan | None = None) -> FoundDevices:
        """The container's devices, from device plugins and claims together.

        Args:
            previous: the plan on the pod: while a driver's slices are gone, its devices are what they were.
        """
        if not self._is_answered:
            return _wait("the kubelet cannot be asked which devices and CPUs the container has")
        asked = self._asked[container.name]
        if asked and self.assignment is None:
            return _wait(self._counts_sentence(container.name))
        own = None if self.assignment is None else self.assignment.containers.get(container.name)
        ids = [device.device_id for device in (() if own is None else own.devices) if device.resource in asked]
        places = [(device_id, self._sources.place(device_id)) for device_id in ids]
        undecided: tuple[UnplacedDevice, ...] = ()
        if container.claims or _claims_extended(self._pod, container):
            claimed = self._sources.claimed(self._pod, container)
            if isinstance(claimed, NotAllocated):
                return _wait(claimed.why)
            before = () if previous is None else previous.devices
            known = [d for d in claimed if not d.is_undecided or d.device_id in before]
            undecided = tuple(d.place for d in claimed if d not in known and isinstance(d.place, UnplacedDevice))
            places.extend((device.device_id, device.place) for device in known)
        return FoundDevices(
            devices=in_address_order(
                [
                    WorkerDevice(place.address if isinstance(place, PlacedDevice) else None, device_id)
                    for device_id, place in places
                ]
            ),
            sources=tuple(
                (WorkerDevice(place.address, device_id), place.source)
                for device_id, place in places
                if isinstance(place, PlacedDevice)
            ),
            unplaced=tuple(place for _, place in places if isinstance(place, UnplacedDevice)),
            undecided=undecided,
        )

    def _matching(self) -> PodAssignment | None:
        """The assignment that is this pod's: every planned container has as many devices as it asks for.

        None where the kubelet shows none yet, or several (an ended pod and its namesake) that could be it.
        """
        fitting = [
            candidate
            for candidate in self._candidates
            if all(_shown(candidate, name, asked) == asked for name, asked in self._asked.items())
        ]
        return fitting[0] if len(fitting) == 1 else None

    def _counts_sentence(self, container: str) -> str:
        asked = self._asked[container]
        shown = _shown(self._candidates[-1], container, asked) if self._candidates else dict.fromkeys(asked, 0)
        counts = ", ".join(f"{shown[resource]} of {count} {resource}" for resource, count in asked.items())
        several = f" in {len(self._candidates)} entries" if len(self._candidates) > 1 else ""
        return f"the kubelet shows {counts}{several} for the container so far"


def with_devices(
    planned: PlannedContainers,
    finds: Mapping[str, FoundDevices],
    memory: Mapping[str, ContainerPlan] | None,
    resources: DeviceResources,
) -> tuple[Container, ...]:
    """The planned containers without those that turn out to have claims for other things than GPUs.

    1. One that asks for an extended resource that is a device, or that somebody named, stays.
    2. One whose claims cannot be told now, or that has ended, is what the plan on the pod says of it.
    3. Where none is left all stay: injection chose them, as it cannot tell either, and they have the plan's volume.

    Args:
        finds: the devices of each that has not ended, by name.
        memory: the plan on the pod by container, None without one.
    """

    def stays(container: Container) -> bool:
        if not planned.is_for_devices or resources.asked_by(container):
            return True
        found = finds.get(container.name)
        if found is None or found.waiting is not None:
            return memory is None or container.name in memory
        return bool(found.devices)

    return tuple(filter(stays, planned.containers)) or planned.containers


def _shown(candidate: PodAssignment, container: str, asked: Mapping[str, int]) -> dict[str, int]:
    """How many devices of each asked resource the kubelet shows for the container."""
    own = candidate.containers.get(container)
    resources = [] if own is None else [device.resource for device in own.devices]
    return {resource: resources.count(resource) for resource in asked}


def _plugin_devices(pod: Pod, container: Container, resources: DeviceResources) -> dict[str, int]:
    """The devices that a device plugin owes the container: those that a claim stands for are left out."""
    by_claim = set() if pod.extended_claim is None else pod.extended_claim.requests.keys()
    asked = resources.asked_by(container)
    return {resource: count for resource, count in asked.items() if (container.name, resource) not in by_claim}


def _claims_extended(pod: Pod, container: Container) -> bool:
    claim = pod.extended_claim
    return claim is not None and any(name == container.name for name, _ in claim.requests)


def _wait(why: str) -> FoundDevices:
    return FoundDevices(waiting=Refusal(reasons.WAITING_FOR_DEVICES, why))
