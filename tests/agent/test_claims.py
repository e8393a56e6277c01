"""Resource claims (DRA): which device a container got, and where it is."""

from __future__ import annotations

from typing import Any

import pytest

from cpuplan.agent.claims import ClaimReader, NotAllocated
from cpuplan.host.devices import PlacedDevice, UnplacedDevice
from cpuplan.kube.client import KubeClient
from cpuplan.kube.pods import Pod, parse_pod
from tests.agent.node import NODE, MakeNode, TestNode

CLAIM = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/gpus"
SLICE = "/apis/resource.k8s.io/v1/resourceslices/slice-{}"
DRIVER = "gpu.nvidia.com"
FIRST, SECOND = "0000:1b:00.0", "0000:43:00.0"

WITH_CLAIM = {
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpus"}],
    "containers": [{"name": "engine", "resources": {"claims": [{"name": "gpu"}]}}],
}


@pytest.fixture
def node(make_node: MakeNode) -> TestNode:
    """A server with eight GPUs."""
    return make_node("h100-server")


def result(request: str, device: str, pool: str = NODE) -> dict[str, str]:
    """One result of an allocation."""
    return {"request": request, "driver": DRIVER, "pool": pool, "device": device}


def allocate(node: TestNode, *results: dict[str, str]) -> None:
    """The claim `gpus` is allocated so."""
    node.api.put(CLAIM, {"status": {"allocation": {"devices": {"results": list(results)}}}})


def publish(node: TestNode, devices: dict[str, dict[str, str]], *, number: int = 0, generation: int = 1) -> None:
    """A ResourceSlice of the node with these devices and their text attributes."""
    node.api.put(
        SLICE.format(number),
        {
            "spec": {
                "nodeName": NODE,
                "driver": DRIVER,
                "pool": {"name": NODE, "generation": generation},
                "devices": [
                    {"name": name, "attributes": {key: {"string": text} for key, text in attributes.items()}}
                    for name, attributes in devices.items()
                ],
            }
        },
    )


def address(text: str) -> dict[str, str]:
    """The standard attribute."""
    return {"resource.kubernetes.io/pciBusID": text}


def pod_with_claims(*uses: dict[str, str], status: dict[str, Any] | None = None) -> Pod:
    """A pod whose container `engine` uses the claim `gpus` in these ways."""
    return parse_pod(
        {
            "metadata": {"namespace": "default", "name": "llm-0", "uid": "u"},
            "spec": {
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpus"}],
                "containers": [{"name": "engine", "resources": {"claims": list(uses)}}],
            },
            "status": status or {},
        }
    )


def reader(node: TestNode) -> ClaimReader:
    """A reader of the node's claims."""
    return ClaimReader(KubeClient(node.connection), NODE, monotonic=node.clock)


def nowhere(device_id: str) -> UnplacedDevice:
    """Places no device id."""
    return UnplacedDevice(device_id, may_change=False)


def places(found: object) -> list[str | None]:
    """The addresses of devices, None for the unplaced ones."""
    assert isinstance(found, tuple), found
    return [device.place.address if isinstance(device.place, PlacedDevice) else None for device in found]


def test_a_container_gets_only_the_devices_of_its_own_request(node: TestNode) -> None:
    allocate(node, result("one", "gpu-0"), result("two", "gpu-1"), result("one-more", "gpu-1"))
    publish(node, {"gpu-0": address(FIRST), "gpu-1": address("00000000:43:00.0")})
    pod = pod_with_claims({"name": "gpu", "request": "two"})
    assert places(reader(node).devices_of(pod, pod.containers[0], nowhere)) == [SECOND]


def test_a_claim_without_a_request_is_all_of_it_each_device_once(node: TestNode) -> None:
    allocate(node, result("one", "gpu-0"), result("two", "gpu-1"))
    publish(node, {"gpu-0": address(FIRST), "gpu-1": address(SECOND)})
    pod = pod_with_claims({"name": "gpu"}, {"name": "gpu", "request": "two"})
    assert places(reader(node).devices_of(pod, pod.containers[0], nowhere)) == [FIRST, SECOND]


def test_an_alternative_of_a_request_belongs_to_the_request(node: TestNode) -> None:
    allocate(node, result("big/second-choice", "gpu-1"))
    publish(node, {"gpu-1": address(SECOND)})
    pod = pod_with_claims({"name": "gpu", "request": "big"})
    assert places(reader(node).devices_of(pod, pod.containers[0], nowhere)) == [SECOND]


def test_only_the_newest_generation_of_a_pool_counts(node: TestNode) -> None:
    allocate(node, result("r", "gpu-0"))
    publish(node, {"gpu-0": address(SECOND)}, number=1, generation=2)
    publish(node, {"gpu-0": address(FIRST)}, number=2, generation=1)
    pod = pod_with_claims({"name": "gpu"})
    assert places(reader(node).devices_of(pod, pod.containers[0], nowhere)) == [SECOND]


def test_a_driver_without_the_standard_attribute_may_name_a_uuid(node: TestNode) -> None:
    allocate(node, result("r", "mig-0"))
    publish(node, {"mig-0": {"uuid": "MIG-1", "parentUUID": "GPU-1"}})
    pod = pod_with_claims({"name": "gpu"})
    asked: list[str] = []

    def place(device_id: str) -> PlacedDevice:
        asked.append(device_id)
        return PlacedDevice(FIRST, "test")

    found = reader(node).devices_of(pod, pod.containers[0], place)
    assert (places(found), asked) == ([FIRST], ["GPU-1"])


def test_the_claim_of_extended_resources_is_followed(node: TestNode) -> None:
    allocate(node, result("container-0-request-0", "gpu-0"), result("container-1-request-0", "gpu-1"))
    publish(node, {"gpu-0": address(FIRST), "gpu-1": address(SECOND)})
    mapping = {"containerName": "engine", "resourceName": "nvidia.com/gpu", "requestName": "container-0-request-0"}
    pod = pod_with_claims(
        status={"extendedResourceClaimStatus": {"resourceClaimName": "gpus", "requestMappings": [mapping]}}
    )
    assert places(reader(node).devices_of(pod, pod.containers[0], nowhere)) == [FIRST]


def test_an_unallocated_claim_is_waited_for(node: TestNode) -> None:
    node.api.put(CLAIM, {"status": {}})
    pod = pod_with_claims({"name": "gpu"})
    assert reader(node).devices_of(pod, pod.containers[0], nowhere) == NotAllocated(
        "resource claim default/gpus is not allocated yet"
    )


def test_a_claim_that_is_not_made_yet_is_waited_for(node: TestNode) -> None:
    pod = pod_with_claims({"name": "other"})
    assert reader(node).devices_of(pod, pod.containers[0], nowhere) == NotAllocated(
        "resource claim 'other' of the pod has not been created yet"
    )


def test_a_device_in_no_slice_is_a_sentence_and_asked_for_once(node: TestNode) -> None:
    allocate(node, result("r", "gpu-9"))
    publish(node, {"gpu-0": address(FIRST)})
    pod = pod_with_claims({"name": "gpu"})
    claims = reader(node)
    for _ in range(3):
        (found,) = claims.devices_of(pod, pod.containers[0], nowhere)  # type: ignore[misc]
        assert found.place == UnplacedDevice(
            f"no ResourceSlice of node {NODE} has device {DRIVER}/{NODE}/gpu-9", may_change=True
        )
    assert len(node.api.requests_of("GET", "resourceslices")) == 1


@pytest.mark.parametrize(
    ("name", "seconds", "list_count"), [("gpu-0", 30, 1), ("gpu-0", 601, 2), ("gpu-1", 30, 2), ("gpu-9", 30, 2)]
)
def test_slices_are_read_anew_when_they_lacked_a_device_or_are_old(
    node: TestNode, name: str, seconds: float, list_count: int
) -> None:
    allocate(node, result("r", name))
    publish(node, {"gpu-0": address(FIRST), "gpu-1": {}})
    pod = pod_with_claims({"name": "gpu"})
    claims = reader(node)
    claims.devices_of(pod, pod.containers[0], nowhere)
    node.clock.advance(seconds)
    claims.forget_slices()
    claims.devices_of(pod, pod.containers[0], nowhere)
    assert len(node.api.requests_of("GET", "resourceslices")) == list_count


def test_an_older_server_is_asked_in_its_own_version(node: TestNode) -> None:
    old = CLAIM.replace("/v1/", "/v1beta1/")
    node.api.put(old, {"status": {"allocation": {"devices": {"results": [result("r", "gpu-0")]}}}})
    device = {"name": "gpu-0", "basic": {"attributes": {"resource.kubernetes.io/pciBusID": {"string": FIRST}}}}
    spec = {"nodeName": NODE, "driver": DRIVER, "pool": {"name": NODE, "generation": 1}, "devices": [device]}
    node.api.put("/apis/resource.k8s.io/v1beta1/resourceslices/s", {"spec": spec})
    node.api.fail(404, path_part="/v1/", times=9, body=b"404 page not found")
    node.api.fail(404, path_part="/v1beta2/", times=9, body=b"404 page not found")
    pod = pod_with_claims({"name": "gpu"})
    assert places(reader(node).devices_of(pod, pod.containers[0], nowhere)) == [FIRST]


@pytest.mark.parametrize(
    "claim", [{"status": []}, {"status": {"allocation": {"devices": {"results": "x"}}}}, {"status": {"allocation": 3}}]
)
def test_a_malformed_claim_is_not_allocated(node: TestNode, claim: dict[str, Any]) -> None:
    node.api.put(CLAIM, claim)
    pod = pod_with_claims({"name": "gpu"})
    assert isinstance(reader(node).devices_of(pod, pod.containers[0], nowhere), NotAllocated)


def test_a_pod_with_a_claim_is_planned_beside_its_device(node: TestNode) -> None:
    allocate(node, result("r", "gpu-1"))
    publish(node, {"gpu-1": address(SECOND)})
    node.add_pod("llm-0")
    node.patch("llm-0", {"spec": WITH_CLAIM})
    node.turn()
    plan = node.plan("llm-0").containers[0][1]
    assert ([worker.address for worker in plan.workers], plan.reason) == ([SECOND], "pinned")
    assert plan.devices == (f"{DRIVER}/{NODE}/gpu-1",)


def test_a_dra_driver_that_restarts_moves_nobody(node: TestNode) -> None:
    """The kubelet removes the slices of a driver that has been away for half a minute."""
    allocate(node, result("gpu", "gpu-0"))
    publish(node, {"gpu-0": address(FIRST)})
    node.add_pod("llm-0")
    node.patch("llm-0", {"spec": WITH_CLAIM})
    node.turn()
    assert node.status("llm-0") == "Pinned"
    node.api.remove(SLICE.format(0))
    node.clock.advance(3600)
    assert node.turn() == []
    node.restart_agent()
    assert node.turn() == []


def test_an_extended_resource_backed_by_dra_is_not_waited_for_at_the_device_plugin(node: TestNode) -> None:
    allocate(node, result("container-0-request-0", "gpu-1"))
    publish(node, {"gpu-1": address(SECOND)})
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.kubelet.set_devices("default", "llm-0", "engine", {})
    mapping = {"containerName": "engine", "resourceName": "nvidia.com/gpu", "requestName": "container-0-request-0"}
    node.patch(
        "llm-0",
        {"status": {"extendedResourceClaimStatus": {"resourceClaimName": "gpus", "requestMappings": [mapping]}}},
    )
    node.turn()
    assert [worker.address for worker in node.plan("llm-0").containers[0][1].workers] == [SECOND]


def test_the_api_server_may_be_silent(node: TestNode) -> None:
    node.api.fail(403, times=9, path_part="resourceclaims")
    pod = pod_with_claims({"name": "gpu"})
    found = reader(node).devices_of(pod, pod.containers[0], nowhere)
    assert isinstance(found, NotAllocated)
    assert found.why.startswith("the container's resource claims cannot be read: GET /apis/resource.k8s.io/v1")
