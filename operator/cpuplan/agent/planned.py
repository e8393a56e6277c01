"""Which pods and containers are planned, and which devices each should have: read from the pod alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..kube.annotations import CONTAINER, is_ours, is_planned
from ..kube.pods import Container, ContainerKind, Pod
from ..model import reasons
from ..model.request import Refusal

DEFAULT_DEVICE_RESOURCES = (
    "nvidia.com/gpu",
    "nvidia.com/gpu.shared",
    "nvidia.com/mig-*",
    "amd.com/gpu",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
)
"""Extended resources that make a container a GPU container; the chart's `deviceResources` says the same."""


def concerns_us(pod: Pod) -> bool:
    """Whether the pod asks for a plan or carries anything of ours."""
    return is_planned(pod.annotations) or pod.managed_label is not None or any(map(is_ours, pod.annotations))


def holds_cpus(pod: Pod) -> bool:
    """Whether the pod takes part in the ledger: it asks, has not ended, and does not leave before it was planned."""
    if not is_planned(pod.annotations) or pod.is_ended:
        return False
    return not pod.is_deleting or any(map(is_ours, pod.annotations))


@dataclass(frozen=True, slots=True)
class DeviceResources:
    """Names of extended resources that are devices; a `*` at the end stands for any ending."""

    patterns: tuple[str, ...] = DEFAULT_DEVICE_RESOURCES

    def is_device(self, resource: str) -> bool:
        """Whether the resource's units are devices that a worker may drive."""
        return any(
            resource.startswith(pattern[:-1]) if pattern.endswith("*") else resource == pattern
            for pattern in self.patterns
        )

    def asked_by(self, container: Container) -> dict[str, int]:
        """How many devices of each resource the container asks for."""
        return {resource: count for resource, count in container.extended.items() if self.is_device(resource)}

    def may_have_devices(self, container: Container) -> bool:
        """Whether the container asks for devices, by extended resource or by a claim, which may be for other things."""
        return bool(container.claims) or bool(self.asked_by(container))


@dataclass(frozen=True, slots=True)
class PlannedContainers:
    """The planned containers in the pod's order, and what is wrong with the choice (None: nothing).

    `is_for_devices`: they are planned for the devices that they may have; nobody named them.
    """

    containers: tuple[Container, ...]
    refusal: Refusal | None = None
    is_for_devices: bool = False


def planned_containers(pod: Pod, resources: DeviceResources) -> PlannedContainers:
    """The containers that are planned: the one `cpuplan.dev/container` names, else all with devices, else the first.

    Those that have claims alone are among them: the spec does not say what a claim is for.
    Only containers that run beside the pod's others count: regular ones and sidecars. Without the named one the
    first stands in for it, so that there is a place for the error.
    """
    candidates = [container for container in pod.containers if container.kind is not ContainerKind.INIT]
    regular = [container for container in candidates if container.kind is ContainerKind.REGULAR]
    first = tuple(regular[:1])
    name = pod.annotations.get(CONTAINER)
    if name is not None:
        named = tuple(container for container in candidates if container.name == name)
        return PlannedContainers(named) if named else PlannedContainers(first, _no_such_container(name, candidates))
    with_devices = tuple(container for container in candidates if resources.may_have_devices(container))
    return PlannedContainers(with_devices, is_for_devices=True) if with_devices else PlannedContainers(first)


def _no_such_container(name: str, candidates: Sequence[Container]) -> Refusal:
    names = ", ".join(container.name for container in candidates)
    return Refusal(
        reasons.INVALID_SETTING,
        f"{CONTAINER} is {name!r}, and the pod has no such container: expected one of {names}",
    )
