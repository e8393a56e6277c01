"""Resource claims (DRA): which device a container got, and where it is."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cpuplan.agent.claims import ClaimReader, NotAllocated
from cpuplan.agent.planned import DeviceResources
from cpuplan.host.devices import PlacedDevice, UnplacedDevice
from cpuplan.host.root import HostRoot
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


def result(request: str, device: str, driver: str = DRIVER, **more: Any) -> dict[str, Any]:
    """One result of an allocation."""
    return {"request": request, "driver": driver, "pool": NODE, "device": device, **more}


def allocate(node: TestNode, *results: dict[str, Any]) -> None:
    """The claim `gpus` is allocated so."""
    node.api.put(CLAIM, {"status": {"allocation": {"devices": {"results": list(results)}}}})


def publish(
    node: TestNode,
    devices: dict[str, dict[str, str]],
    *,
    number: int = 0,
    generation: int = 1,
    driver: str = DRIVER,
) -> None:
    """A ResourceSlice of the node with these devices and their text attributes."""
    node.api.put(
        SLICE.format(number),
        {
            "spec": {
                "nodeName": NODE,
                "driver": driver,
                "pool": {"name": NODE, "generation": generation},
                "devices": [
                    {"name": name, "attributes": {key: {"string": text} for key, text in attributes.items()}}
                    for name, attributes in devices.items()
                ],
            }
        },
    )


def add_pod_with_claim(node: TestNode) -> None:
    """A pod whose engine has the claim `gpus` and asks for a plan."""
    node.add_pod("llm-0")
    node.patch("llm-0", {"spec": WITH_CLAIM})


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
    return ClaimReader(KubeClient(node.connection), NODE, resources=DeviceResources(), monotonic=node.clock)


@dataclass(slots=True)
class Host:
    """Knows one UUID and no PCI function of a GPU's class; remembers which device ids it was asked for."""

    uuid: str = ""
    asked: list[str] = field(default_factory=list)

    def place(self, device_id: str) -> PlacedDevice | UnplacedDevice:
        self.asked.append(device_id)
        return PlacedDevice(FIRST, "test") if device_id == self.uuid else UnplacedDevice(device_id, may_change=False)

    def is_gpu(self, address: str) -> bool:
        return address == FIRST


nowhere = Host()


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
    host = Host("GPU-1")
    found = reader(node).devices_of(pod, pod.containers[0], host)
    assert (places(found), host.asked) == ([FIRST], ["GPU-1"])


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
    add_pod_with_claim(node)
    node.turn()
    plan = node.plan("llm-0").containers[0][1]
    assert ([worker.address for worker in plan.workers], plan.reason) == ([SECOND], "pinned")
    assert plan.devices == (f"{DRIVER}/{NODE}/gpu-1",)


def test_a_dra_driver_that_restarts_moves_nobody(node: TestNode) -> None:
    """The kubelet removes the slices of a driver that has been away for half a minute."""
    allocate(node, result("gpu", "gpu-0"))
    publish(node, {"gpu-0": address(FIRST)})
    add_pod_with_claim(node)
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


NIC = "0000:2f:00.0"
CHANNEL = ("compute-domain.nvidia.com", "channel-0", {"type": "channel"})
DRANET = ("dra.net", "eth1", {"dra.net/ifName": "eth1", "dra.net/pciAddress": NIC})
SRIOV = ("sriovnetwork.k8snetworkplumbingwg.io", "0000-2f-00-0", address(NIC))
RDMA = ("rdma.example.com", "mlx5-0", {"uuid": "1b3f-22"})


def no_gpus(*, with_gpu: bool) -> list[dict[str, Any]]:
    """The results of a claim for a NIC, an IMEX channel and whatnot, and of one for a GPU."""
    others = [result("other", name, driver) for driver, name, _ in (CHANNEL, DRANET, SRIOV, RDMA)]
    return [*others, *([result("gpu", "gpu-1")] if with_gpu else [])]


def publish_all(node: TestNode) -> None:
    """A slice of each driver; the NIC is a PCI function of a network's class."""
    (node.root.pci_folder / NIC).mkdir()
    (node.root.pci_folder / NIC / "class").write_text("0x020000\n")
    (node.root.pci_folder / NIC / "vendor").write_text("0x15b3\n")
    for number, (driver, name, attributes) in enumerate((CHANNEL, DRANET, SRIOV, RDMA)):
        publish(node, {name: attributes}, number=number + 1, driver=driver)
    publish(node, {"gpu-1": address(SECOND)})


@pytest.fixture
def writable(node: TestNode, tmp_path: Path) -> TestNode:
    """The server with a sysfs of its own."""
    shutil.copytree(node.root.sys, tmp_path / "sys", symlinks=True)
    node.root = HostRoot(tmp_path / "sys", node.root.proc, node.root.cgroup)
    node.restart_agent()
    return node


def test_claims_for_nics_and_channels_make_no_workers(writable: TestNode) -> None:
    """As pods that span nodes have them: a GPU from the device plugin, and an IMEX channel by claim."""
    node = writable
    allocate(node, *no_gpus(with_gpu=False))
    publish_all(node)
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.patch("llm-0", {"spec": {**WITH_CLAIM, "containers": [with_gpu_and_claim()]}})
    node.turn()
    ((_, plan),) = node.plan("llm-0").containers
    assert ([worker.address for worker in plan.workers], plan.reason) == ([FIRST], "pinned")
    assert node.annotations("llm-0")["cpuplan.dev/step-cpus"] == "engine=0,112"


def with_gpu_and_claim() -> dict[str, Any]:
    return {"name": "engine", "resources": {"limits": {"nvidia.com/gpu": "1"}, "claims": [{"name": "gpu"}]}}


def test_a_nic_beside_a_gpu_takes_no_step_of_another_gpu(writable: TestNode) -> None:
    node = writable
    allocate(node, *no_gpus(with_gpu=True))
    publish_all(node)
    add_pod_with_claim(node)
    node.turn()
    ((_, plan),) = node.plan("llm-0").containers
    assert [worker.address for worker in plan.workers] == [SECOND]
    assert plan.devices == (f"{DRIVER}/{NODE}/gpu-1",)


def test_a_sidecar_with_a_nic_is_no_gpu_container(writable: TestNode) -> None:
    node = writable
    allocate(node, *no_gpus(with_gpu=False))
    publish_all(node)
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    sidecar = {"name": "net", "resources": {"claims": [{"name": "gpu"}]}}
    engine = {"name": "engine", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    node.patch("llm-0", {"spec": {**WITH_CLAIM, "containers": [sidecar, engine]}})
    node.run_container("llm-0", "net", cpuset="0-223")
    node.run_container("llm-0", "engine", cpuset="0-223")
    node.turn()
    assert [name for name, _ in node.plan("llm-0").containers] == ["engine"]
    audited = json.loads(node.assembled.auditor.document())["containers"]
    assert [entry["name"] for entry in audited] == ["llm-0 container engine"]
    # A restarted agent whose claims cannot be read moves nobody, and plans no sidecar.
    node.api.fail(403, times=99, path_part="resourceclaims")
    node.restart_agent()
    assert node.turn() == []


def test_a_pod_with_a_nic_alone_is_told_that_it_has_no_gpu(writable: TestNode) -> None:
    node = writable
    allocate(node, *no_gpus(with_gpu=False))
    publish_all(node)
    add_pod_with_claim(node)
    node.turn()
    assert node.plan("llm-0").containers[0][1].reason == "no-device"


def test_a_driver_that_restarts_makes_no_nic_a_gpu_and_no_gpu_a_nic(writable: TestNode) -> None:
    """The GPU is one of a driver that nobody has heard of: its class is all that is known of it."""
    node = writable
    unknown = "gpus.example.com"
    allocate(node, result("a", "gpu-1", unknown), result("b", "eth1", "dra.net"))
    publish_all(node)
    publish(node, {"gpu-1": address(SECOND)}, number=9, driver=unknown)
    add_pod_with_claim(node)
    node.turn()
    ((_, plan),) = node.plan("llm-0").containers
    assert ([worker.address for worker in plan.workers], plan.reason) == ([SECOND], "pinned")
    for number in (*range(5), 9):
        node.api.remove(SLICE.format(number))
    node.clock.advance(3600)
    assert node.turn() == []
    node.restart_agent()
    assert node.turn() == []


def test_a_device_of_an_unknown_driver_that_no_slice_shows_is_not_ignored_in_silence(writable: TestNode) -> None:
    node = writable
    allocate(node, result("a", "gpu-1", "gpus.example.com"))
    add_pod_with_claim(node)
    node.turn()
    ((_, plan),) = node.plan("llm-0").containers
    assert (plan.reason, plan.why) == (
        "device-unknown",
        f"no ResourceSlice of node {NODE} has device gpus.example.com/{NODE}/gpu-1: whether that is a GPU is not "
        "known, and the slices are read again about every minute; if its driver has nothing else, name it in "
        "deviceDrivers",
    )
    publish(node, {"gpu-1": address(SECOND)}, driver="gpus.example.com")
    node.clock.advance(31)
    assert node.turn() == []
    node.clock.advance(30)
    node.turn()
    assert node.status("llm-0") == "Pinned"


def test_a_device_of_a_known_driver_without_a_slice_is_unknown_and_asked_for_soon(node: TestNode) -> None:
    allocate(node, result("a", "gpu-1"))
    add_pod_with_claim(node)
    node.turn()
    assert node.plan("llm-0").containers[0][1].reason == "device-unknown"
    publish(node, {"gpu-1": address(SECOND)})
    node.clock.advance(31)
    node.turn()
    assert node.status("llm-0") == "Pinned"


def test_a_driver_that_the_administrator_names_has_gpus_alone(make_node: MakeNode) -> None:
    node = make_node("h100-server", device_drivers=("odd.example.com",))
    allocate(node, result("a", "x", "odd.example.com"))
    publish(node, {"x": {"colour": "green"}}, driver="odd.example.com")
    add_pod_with_claim(node)
    node.turn()
    ((_, plan),) = node.plan("llm-0").containers
    assert (plan.reason, plan.why) == (
        "device-unknown",
        f"the ResourceSlice of device odd.example.com/{NODE}/x has neither resource.kubernetes.io/pciBusID nor a UUID; "
        "use a version of the driver that publishes one, or a CPU number instead of auto",
    )


@pytest.mark.parametrize(
    ("driver", "attributes"),
    [
        ("gpu.nvidia.com", {"pcieBusID": SECOND.upper()}),
        ("gpu.nvidia.com", {"gpu.nvidia.com/pcieBusID": SECOND}),
        ("gpu.amd.com", {"pciAddr": SECOND}),
        ("gpu.amd.com", {"type": "amdgpu-partition", "parentPciAddr": SECOND}),
        ("gpu.intel.com", {"pciAddress": SECOND, "pciRoot": "00"}),
        ("gpu.intel.com", {"resource.kubernetes.io/pciBusID": SECOND, "pciAddress": "no address"}),
        ("gpu.nvidia.com", {"resource.kubernetes.io/pciBusID": "no address", "pcieBusID": SECOND}),
    ],
)
def test_an_address_is_found_under_every_name_that_drivers_give_it(
    node: TestNode, driver: str, attributes: dict[str, str]
) -> None:
    allocate(node, result("r", "x", driver))
    publish(node, {"x": attributes}, driver=driver)
    pod = pod_with_claims({"name": "gpu"})
    assert places(reader(node).devices_of(pod, pod.containers[0], nowhere)) == [SECOND]


def test_a_device_of_an_unknown_driver_with_a_uuid_of_nvidias_is_a_gpu(node: TestNode) -> None:
    allocate(node, result("r", "x", "vgpu.example.com"), result("r", "y", "vgpu.example.com"))
    publish(node, {"x": {"uuid": "GPU-1"}, "y": {"uuid": "5f"}}, driver="vgpu.example.com")
    pod = pod_with_claims({"name": "gpu"})
    assert places(reader(node).devices_of(pod, pod.containers[0], Host("GPU-1"))) == [FIRST]


def test_an_extended_resource_that_is_no_device_has_no_claimed_devices(node: TestNode) -> None:
    allocate(node, result("nic", "eth1", "nics.example.com"), result("gpu", "gpu-1", "gpus.example.com"))
    publish(node, {"eth1": address(FIRST)}, driver="nics.example.com")
    publish(node, {"gpu-1": address(SECOND)}, number=1, driver="gpus.example.com")
    mappings = [
        {"containerName": "engine", "resourceName": resource, "requestName": request}
        for resource, request in (("example.com/nic", "nic"), ("nvidia.com/gpu", "gpu"))
    ]
    pod = pod_with_claims(
        status={"extendedResourceClaimStatus": {"resourceClaimName": "gpus", "requestMappings": mappings}}
    )
    assert places(reader(node).devices_of(pod, pod.containers[0], nowhere)) == [SECOND]


def test_shares_of_one_device_are_a_worker_each(node: TestNode) -> None:
    allocate(node, result("r", "gpu-1", shareID="s1"), result("r", "gpu-1", shareID="s2"))
    publish(node, {"gpu-1": address(SECOND)})
    add_pod_with_claim(node)
    node.turn()
    ((_, plan),) = node.plan("llm-0").containers
    assert [worker.address for worker in plan.workers] == [SECOND, SECOND]
    assert plan.devices == (f"{DRIVER}/{NODE}/gpu-1/s1", f"{DRIVER}/{NODE}/gpu-1/s2")


def test_what_an_administrator_only_watches_is_no_device(node: TestNode) -> None:
    allocate(node, result("r", "gpu-0", adminAccess=True), result("r", "gpu-1", adminAccess=False))
    publish(node, {"gpu-0": address(FIRST), "gpu-1": address(SECOND)})
    pod = pod_with_claims({"name": "gpu"})
    assert places(reader(node).devices_of(pod, pod.containers[0], nowhere)) == [SECOND]


def test_a_claim_that_need_not_be_made_is_not_waited_for(node: TestNode) -> None:
    """Its entry in the pod's status has no object's name."""
    allocate(node, result("r", "gpu-1"))
    publish(node, {"gpu-1": address(SECOND)})
    pod = pod_with_claims({"name": "gpu"}, {"name": "spare"}, status={"resourceClaimStatuses": [{"name": "spare"}]})
    assert places(reader(node).devices_of(pod, pod.containers[0], nowhere)) == [SECOND]
