"""The devices of a container's resource claims (DRA), with their PCI addresses.

PodResources names all devices of a claim; which of them one container got stands only in the claim's allocation:
1. The container's claim, and its request in it, from the pod.
2. The ResourceClaim's allocation results for that request (`request` or, for alternatives, `request/…`).
3. Each result's device, by driver, pool and name, in the ResourceSlices of the pool's newest generation.
4. Its address: the standard attribute `resource.kubernetes.io/pciBusID`, else an attribute of the driver's own
   that holds an address, else its (or its parent's) UUID as a device id.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/, KEP-4381, KEP-5004.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from ..host.devices import PlacedDevice, UnplacedDevice
from ..kube.answers import JsonObject
from ..kube.client import KubeClient
from ..kube.errors import ApiUnreachableError, KubeError, NotFoundError
from ..kube.pods import Container, Pod
from ..model.topology import normalise_address

API_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
"""Of resource.k8s.io: v1 from Kubernetes 1.34 on, v1beta2 in 1.33, v1beta1 in 1.32."""

SILENCE_SECONDS = 10.0
"""An API server that did not answer is left alone for this long: every pod with a claim would wait in turn."""

SLICES_SECONDS = 600.0
"""A device that is known stays where it is; thousands of nodes must not list their slices every half minute."""

STANDARD_ADDRESS: Final = "resource.kubernetes.io/pciBusID"

_OTHER_ADDRESSES = ("pciBusID", "pciBusId", "pciAddress", "pciAddr")
_UUIDS = ("parentUUID", "parentUuid", "uuid", "UUID")
"""A partition's own UUID leads nowhere without NVML, its parent's does."""

PlaceDevice = Callable[[str], PlacedDevice | UnplacedDevice]


@dataclass(frozen=True, slots=True)
class ClaimedAddress:
    """A device of a claim: the id `driver/pool/device`, and where it is."""

    device_id: str
    place: PlacedDevice | UnplacedDevice


@dataclass(frozen=True, slots=True)
class NotAllocated:
    """Why a container's claims cannot be resolved now; asking later may help."""

    why: str


class ClaimReader:
    """Reads claims and slices; remembers the allocations it has seen, and the slices until `forget_slices`."""

    def __init__(self, client: KubeClient, node_name: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._node_name = node_name
        self._monotonic = monotonic
        self._version: str | None = None
        self._allocations: dict[tuple[str, str, str], tuple[_Result, ...]] = {}
        self._attributes: dict[tuple[str, str, str], Mapping[str, str]] | None = None
        self._slices_read_at = 0.0
        self._missing: set[tuple[str, str, str]] = set()
        self._silent: tuple[float, NotAllocated] | None = None

    def forget_slices(self) -> None:
        """Reads the node's slices anew at the next question, if they lacked a device or are SLICES_SECONDS old."""
        if self._missing or self._monotonic() - self._slices_read_at >= SLICES_SECONDS:
            self._attributes = None
            self._missing.clear()

    def keep_allocations_of(self, pod_uids: frozenset[str]) -> None:
        """Forgets the allocations of other pods."""
        self._allocations = {key: found for key, found in self._allocations.items() if key[0] in pod_uids}

    def devices_of(
        self, pod: Pod, container: Container, place: PlaceDevice
    ) -> tuple[ClaimedAddress, ...] | NotAllocated:
        """The devices that the container got through claims, in the order of the allocation.

        Args:
            place: where the device with a UUID is, for drivers that name no address.
        """
        if self._silent is not None and self._monotonic() < self._silent[0]:
            return self._silent[1]
        try:
            results = [
                result
                for claim, request in _uses(pod, container)
                for result in self._allocation(pod, claim)
                if request is None or result.request.split("/", 1)[0] == request
            ]
            return tuple(ClaimedAddress(str(result), self._locate(result, place)) for result in dict.fromkeys(results))
        except _NotYetError as error:
            return NotAllocated(str(error))
        except KubeError as error:
            why = NotAllocated(f"the container's resource claims cannot be read: {error}")
            if isinstance(error, ApiUnreachableError):
                self._silent = (self._monotonic() + SILENCE_SECONDS, why)
            return why

    def _allocation(self, pod: Pod, claim: str) -> tuple[_Result, ...]:
        key = (pod.uid, pod.namespace, claim)
        if key not in self._allocations:
            path = f"/namespaces/{quote(pod.namespace, safe='')}/resourceclaims/{quote(claim, safe='')}"
            results = tuple(_results(self._get(path)))
            if not results:
                raise _NotYetError(f"resource claim {pod.namespace}/{claim} is not allocated yet")
            self._allocations[key] = results
        return self._allocations[key]

    def _locate(self, result: _Result, place: PlaceDevice) -> PlacedDevice | UnplacedDevice:
        if self._attributes is None or result.key not in self._attributes.keys() | self._missing:
            answer = self._get("/resourceslices", {"fieldSelector": f"spec.nodeName={self._node_name}"})
            self._attributes = _attributes(answer.get("items"))
            self._slices_read_at = self._monotonic()
        attributes = self._attributes.get(result.key)
        if attributes is None:
            self._missing.add(result.key)
            return UnplacedDevice(f"no ResourceSlice of node {self._node_name} has device {result}", may_change=True)
        for name in (STANDARD_ADDRESS, *_OTHER_ADDRESSES):
            if name in attributes:
                return PlacedDevice(normalise_address(attributes[name]), f"ResourceSlice attribute {name}")
        for name in _UUIDS:
            if name in attributes:
                return place(attributes[name])
        self._missing.add(result.key)
        return UnplacedDevice(
            f"the ResourceSlice of device {result} has neither {STANDARD_ADDRESS} nor a UUID", may_change=True
        )

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
    """One result of an allocation; equal where the device is the same."""

    request: str
    driver: str
    pool: str
    device: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What names the device in the slices."""
        return (self.driver, self.pool, self.device)

    def __str__(self) -> str:
        return "/".join(self.key)


def _uses(pod: Pod, container: Container) -> Iterator[tuple[str, str | None]]:
    """The claim objects that the container uses and its request in each, those for extended resources too."""
    for use in container.claims:
        if use.claim not in pod.claim_names:
            raise _NotYetError(f"resource claim {use.claim!r} of the pod has not been created yet")
        yield pod.claim_names[use.claim], use.request
    if pod.extended_claim is not None:
        for (name, _), request in pod.extended_claim.requests.items():
            if name == container.name:
                yield pod.extended_claim.claim_name, request


def _results(claim: JsonObject) -> Iterator[_Result]:
    for entry in _list(_at(claim, "status", "allocation", "devices", "results")):
        yield _Result(*(str(entry.get(key, "")) for key in ("request", "driver", "pool", "device")))


def _attributes(slices: Any) -> dict[tuple[str, str, str], Mapping[str, str]]:
    """The text attributes of each device of the newest generation of its pool."""
    newest: dict[tuple[str, str], int] = {}
    found: dict[tuple[str, str, str], Mapping[str, str]] = {}
    ordered = sorted(_list(slices), key=_generation)
    for entry in ordered:
        pool = (str(_at(entry, "spec", "driver")), str(_at(entry, "spec", "pool", "name")))
        if newest.get(pool, -1) < _generation(entry):
            newest[pool] = _generation(entry)
            found = {key: attributes for key, attributes in found.items() if key[:2] != pool}
        for device in _list(_at(entry, "spec", "devices")):
            # v1beta1 wraps the device's content in `basic`.
            content = _at(device, "basic", "attributes") or _at(device, "attributes")
            attributes = content if isinstance(content, dict) else {}
            found[(*pool, str(device.get("name", "")))] = {
                str(name): text
                for name, value in attributes.items()
                if isinstance(value, dict) and isinstance(text := value.get("string"), str)
            }
    return found


def _generation(entry: JsonObject) -> int:
    generation = _at(entry, "spec", "pool", "generation")
    return generation if isinstance(generation, int) else 0


def _at(content: Any, *keys: str) -> Any:
    for key in keys:
        content = content.get(key) if isinstance(content, dict) else None
    return content


def _list(content: Any) -> Sequence[JsonObject]:
    return [entry for entry in content if isinstance(entry, dict)] if isinstance(content, list) else []
