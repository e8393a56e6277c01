"""The devices of a container's resource claims (DRA) that a worker may drive, with their PCI addresses.

PodResources names all devices of a claim; which of them one container got stands only in the claim's allocation:
1. The container's claim, and its request in it, from the pod.
2. The ResourceClaim's allocation results for that request (`request` or, for alternatives, `request/…`), without
   those of an administrator's access, which watches devices and uses none.
3. Each result's device, by driver, pool and name, in the ResourceSlices of the pool's newest generation.
4. Its address: the attributes that `slices` knows, else its (or its parent's) UUID as a device id.
5. Whether it is a GPU: claims are also made for network cards, IMEX channels and disks, and those are no workers'
   devices. It is one where the claim stands for an extended resource that is a device, where its driver is known to
   have nothing else, where its PCI function is of a GPU's class, or where its UUID is one of NVIDIA's.

A device of an unknown driver that no slice shows may be either; that is said of it, and the caller decides.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/, KEP-4381, KEP-5004,
KEP-5018 (administrator's access), KEP-5075 (shares of a device).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import quote

from ..host.devices import PlacedDevice, UnplacedDevice
from ..kube.answers import JsonObject
from ..kube.client import KubeClient
from ..kube.errors import ApiUnreachableError, KubeError, NotFoundError
from ..kube.pods import Container, Pod
from .planned import DeviceResources
from .slices import (
    STANDARD_ADDRESS,
    Attributes,
    DeviceKey,
    address_in,
    attributes_in,
    entries_of,
    uuid_in,
    value_at,
)

API_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
"""Of resource.k8s.io: v1 from Kubernetes 1.34 on, v1beta2 in 1.33, v1beta1 in 1.32."""

DEFAULT_DEVICE_DRIVERS: Final = ("gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com")
"""DRA drivers all of whose devices are GPUs or parts of one; the chart's `deviceDrivers` says the same."""

SILENCE_SECONDS = 10.0
"""An API server that did not answer is left alone for this long: every pod with a claim would wait in turn."""

SLICES_SECONDS = 600.0
"""A device that is known stays where it is; thousands of nodes must not list their slices every half minute."""

UNDECIDED_SECONDS = 60.0
"""A device that may be no GPU is looked for this often: its driver may be late, or it stands in no slice for ever."""

_NVIDIA_UUIDS = ("GPU-", "MIG-")

_log = logging.getLogger(__name__)


class DevicePlaces(Protocol):
    """What the host knows of devices."""

    def place(self, device_id: str) -> PlacedDevice | UnplacedDevice:
        """Where a device is, for drivers that name no address."""

    def is_gpu(self, address: str) -> bool:
        """Whether the PCI function at this address is of a GPU's class."""


@dataclass(frozen=True, slots=True)
class ClaimedAddress:
    """A device of a claim: the id `driver/pool/device`, with `/share` for a share of one, and where it is.

    Attributes:
        is_undecided: it is not known whether it is a GPU; then it has no place.
    """

    device_id: str
    place: PlacedDevice | UnplacedDevice
    is_undecided: bool = False


@dataclass(frozen=True, slots=True)
class NotAllocated:
    """Why a container's claims cannot be resolved now; asking later may help."""

    why: str


class ClaimReader:
    """Reads claims and slices; remembers the allocations it has seen, and the slices until `forget_slices`.

    Args:
        resources: which extended resources are devices.
        drivers: DRA drivers all of whose devices are.
    """

    def __init__(
        self,
        client: KubeClient,
        node_name: str,
        *,
        resources: DeviceResources,
        drivers: tuple[str, ...] = DEFAULT_DEVICE_DRIVERS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._node_name = node_name
        self._resources = resources
        self._drivers = frozenset(drivers)
        self._monotonic = monotonic
        self._version: str | None = None
        self._allocations: dict[tuple[str, str, str], tuple[_Result, ...]] = {}
        self._attributes: dict[DeviceKey, Attributes] | None = None
        self._slices_read_at = 0.0
        self._missing: set[DeviceKey] = set()
        self._undecided: set[DeviceKey] = set()
        self._passed_over: set[tuple[str, str]] = set()
        self._silent: tuple[float, NotAllocated] | None = None

    def forget_slices(self) -> None:
        """Reads the node's slices anew at the next question, if they lacked a GPU or are too old.

        They are after SLICES_SECONDS; where they lacked a device that may be one, after UNDECIDED_SECONDS.
        """
        most_seconds = UNDECIDED_SECONDS if self._undecided else SLICES_SECONDS
        if self._missing or self._monotonic() - self._slices_read_at >= most_seconds:
            self._attributes = None
            self._missing.clear()
            self._undecided.clear()

    def keep_allocations_of(self, pod_uids: frozenset[str]) -> None:
        """Forgets the allocations of other pods."""
        self._allocations = {key: found for key, found in self._allocations.items() if key[0] in pod_uids}
        self._passed_over = {entry for entry in self._passed_over if entry[0] in pod_uids}

    def devices_of(
        self, pod: Pod, container: Container, places: DevicePlaces
    ) -> tuple[ClaimedAddress, ...] | NotAllocated:
        """The GPUs that the container got through claims, and what may be one, in the order of the allocation."""
        if self._silent is not None and self._monotonic() < self._silent[0]:
            return self._silent[1]
        try:
            found = []
            for result, is_gpu in self._results(pod, container).items():
                device = self._resolve(result, places, is_gpu=is_gpu)
                if device is None:
                    self._tell_passed_over(pod, result)
                else:
                    found.append(device)
            return tuple(found)
        except _NotYetError as error:
            return NotAllocated(str(error))
        except KubeError as error:
            why = NotAllocated(f"the container's resource claims cannot be read: {error}")
            if isinstance(error, ApiUnreachableError):
                self._silent = (self._monotonic() + SILENCE_SECONDS, why)
            return why

    def _results(self, pod: Pod, container: Container) -> dict[_Result, bool]:
        """What the container got, each once, and whether that it is a GPU is known from what it was asked for."""
        results: dict[_Result, bool] = {}
        for use in _uses(pod, container, self._resources):
            for result in self._allocation(pod, use.claim):
                if use.request is None or result.request.split("/", 1)[0] == use.request:
                    results[result] = results.get(result, False) or use.is_gpu
        return results

    def _allocation(self, pod: Pod, claim: str) -> tuple[_Result, ...]:
        key = (pod.uid, pod.namespace, claim)
        if key not in self._allocations:
            path = f"/namespaces/{quote(pod.namespace, safe='')}/resourceclaims/{quote(claim, safe='')}"
            answer = self._get(path)
            if not entries_of(value_at(answer, "status", "allocation", "devices", "results")):
                raise _NotYetError(f"resource claim {pod.namespace}/{claim} is not allocated yet")
            self._allocations[key] = tuple(_results_in(answer))
        return self._allocations[key]

    def _resolve(self, result: _Result, places: DevicePlaces, *, is_gpu: bool) -> ClaimedAddress | None:
        """Where the device of a result is; None where it is no GPU."""
        is_gpu = is_gpu or result.driver in self._drivers
        attributes = self._attributes_of(result.key)
        if attributes is None:
            (self._missing if is_gpu else self._undecided).add(result.key)
            why = f"no ResourceSlice of node {self._node_name} has device {result}"
            return ClaimedAddress(str(result), UnplacedDevice(why, may_change=is_gpu), is_undecided=not is_gpu)
        named = address_in(attributes)
        if named is not None:
            if not is_gpu and not places.is_gpu(named.address):
                return None
            source = f"ResourceSlice attribute {named.attribute}"
            return ClaimedAddress(str(result), PlacedDevice(named.address, source))
        uuid = uuid_in(attributes)
        if uuid is not None and (is_gpu or uuid.upper().startswith(_NVIDIA_UUIDS)):
            return ClaimedAddress(str(result), places.place(uuid))
        if not is_gpu:
            return None
        self._missing.add(result.key)
        why = (
            f"the ResourceSlice of device {result} has neither {STANDARD_ADDRESS} nor a UUID; use a version of the "
            "driver that publishes one, or a CPU number instead of auto"
        )
        return ClaimedAddress(str(result), UnplacedDevice(why, may_change=True))

    def _attributes_of(self, key: DeviceKey) -> Attributes | None:
        """What the slices say of a device, None where none shows it; read anew once for a device they lacked."""
        known = self._attributes
        if known is None or not (key in known or key in self._missing or key in self._undecided):
            answer = self._get("/resourceslices", {"fieldSelector": f"spec.nodeName={self._node_name}"})
            known = self._attributes = attributes_in(answer.get("items"))
            self._slices_read_at = self._monotonic()
        return known.get(key)

    def _tell_passed_over(self, pod: Pod, result: _Result) -> None:
        """Logs once that a claimed device is no worker's."""
        if (pod.uid, str(result)) not in self._passed_over:
            self._passed_over.add((pod.uid, str(result)))
            _log.debug("a claimed device is no GPU, no worker drives it pod=%s device=%s", pod.key, result)

    def _get(self, path: str, query: Mapping[str, str] | None = None) -> JsonObject:
        """The answer of the newest version of the API group that the server has."""
        versions = API_VERSIONS if self._version is None else (self._version,)
        for version in versions:
            try:
                answer = self._client.get(f"/apis/resource.k8s.io/{version}{path}", query)
            except NotFoundError as error:
                # The group's version is missing; a missing object is said with its kind and name.
                if version == versions[-1] or error.message.startswith("resourceclaims"):
                    raise
                continue
            self._version = version
            return answer
        raise AssertionError("API_VERSIONS is never empty")


class _NotYetError(Exception):
    """Something about a claim is not there yet."""


@dataclass(frozen=True, slots=True)
class _Result:
    """One result of an allocation; equal where the device, or the share of it, is the same.

    `share` is empty where the device is not shared by capacity.
    """

    request: str
    driver: str
    pool: str
    device: str
    share: str

    @property
    def key(self) -> DeviceKey:
        """What names the device in the slices."""
        return (self.driver, self.pool, self.device)

    def __str__(self) -> str:
        return "/".join((*self.key, self.share) if self.share else self.key)


@dataclass(frozen=True, slots=True)
class _Use:
    """A claim object that a container uses, its request in it (None: all), and whether it stands for a GPU resource."""

    claim: str
    request: str | None
    is_gpu: bool = False


def _uses(pod: Pod, container: Container, resources: DeviceResources) -> Iterator[_Use]:
    """The container's uses of claims; those that stand for extended resources only where these are devices.

    A claim that need not be made for the pod is none: its entry in the pod's status has no name.
    """
    for use in container.claims:
        if use.claim not in pod.claim_names:
            raise _NotYetError(f"resource claim {use.claim!r} of the pod has not been created yet")
        claim = pod.claim_names[use.claim]
        if claim is not None:
            yield _Use(claim, use.request)
    if pod.extended_claim is not None:
        for (name, resource), request in pod.extended_claim.requests.items():
            if name == container.name and resources.is_device(resource):
                yield _Use(pod.extended_claim.claim_name, request, is_gpu=True)


def _results_in(claim: JsonObject) -> Iterator[_Result]:
    for entry in entries_of(value_at(claim, "status", "allocation", "devices", "results")):
        if entry.get("adminAccess") is not True:
            yield _Result(*(str(entry.get(key) or "") for key in ("request", "driver", "pool", "device", "shareID")))
