"""The kubelet's answers, read over a real socket, in all their odd shapes."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from cpuplan.agent import podresources
from cpuplan.agent.podresources import (
    AssignedDevice,
    PodResourcesClient,
    PodResourcesError,
    parse_assignments,
)
from cpuplan.agent.podresources_messages import message_class
from tests.fakekubelet import FakePodResources


@pytest.fixture
def client(kubelet: FakePodResources) -> Iterator[PodResourcesClient]:
    """A client of the kubelet."""
    client = PodResourcesClient(kubelet.socket)
    yield client
    client.close()


def field(number: int, content: bytes) -> bytes:
    """A field of protobuf's wire format with a length."""
    return bytes([number << 3 | 2, len(content)]) + content


def test_devices_are_sorted_by_resource_and_id(kubelet: FakePodResources, client: PodResourcesClient) -> None:
    kubelet.set_devices("d", "p", "engine", {"nvidia.com/gpu": ["GPU-b", "GPU-a"], "a.com/nic": ["x"]})
    (pod,) = client.list_assignments()["d", "p"]
    assert [device.device_id for device in pod.containers["engine"].devices] == ["x", "GPU-a", "GPU-b"]


def test_a_device_that_is_repeated_per_numa_node_is_one_device() -> None:
    """As the kubelet sends it: node 0 is an empty message, and a plugin may tell no node at all."""
    of_node_zero = field(1, b"r") + field(2, b"a") + field(3, field(1, b""))
    of_node_one = field(1, b"r") + field(2, b"a") + field(3, field(1, b"\x08\x01"))
    of_no_node = field(1, b"r") + field(2, b"b")
    entries = b"".join(field(2, entry) for entry in (of_node_zero, of_node_one, of_no_node))
    pod = field(1, b"p") + field(2, b"d") + field(3, field(1, b"engine") + entries)
    (listed,) = parse_assignments(message_class("ListPodResourcesResponse").FromString(field(1, pod)))["d", "p"]
    assert listed.containers["engine"].devices == (AssignedDevice("r", "a"), AssignedDevice("r", "b"))


def test_exclusive_cpus_come_per_container_and_per_pod(kubelet: FakePodResources, client: PodResourcesClient) -> None:
    kubelet.set_cpu_ids("d", "p", "engine", [5, 1, 3])
    kubelet.set_pod_cpu_ids("d", "p", [7, 5, 3, 1])
    (pod,) = client.list_assignments()["d", "p"]
    assert (pod.containers["engine"].cpu_ids, pod.cpu_ids) == (frozenset({1, 3, 5}), frozenset({1, 3, 5, 7}))


def test_an_ended_pod_and_its_namesake_are_both_kept(kubelet: FakePodResources, client: PodResourcesClient) -> None:
    kubelet.set_devices("d", "p", "engine", {"r": ["old"]})
    kubelet.end_pod("d", "p")
    kubelet.set_devices("d", "p", "engine", {"r": ["new"]})
    listed = client.list_assignments()["d", "p"]
    assert [pod.containers["engine"].devices[0].device_id for pod in listed] == ["old", "new"]


def test_fields_of_newer_kubelets_are_passed_over() -> None:
    pod = field(1, b"p") + field(2, b"d") + field(15, b"ab")
    answer = message_class("ListPodResourcesResponse").FromString(field(1, pod))
    assert list(parse_assignments(answer)) == [("d", "p")]


def test_a_missing_socket_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        PodResourcesError, match=r"socket .*/none\.sock does not exist; expected its directory to be mo"
    ):
        PodResourcesClient(tmp_path / "none.sock").list_assignments()


def test_a_kubelet_that_restarts_is_found_again(kubelet: FakePodResources, client: PodResourcesClient) -> None:
    client.list_assignments()
    kubelet.stop()
    with pytest.raises(PodResourcesError):
        client.list_assignments()
    kubelet.start()
    assert client.list_assignments() == {}


def test_a_socket_that_nobody_serves_is_a_sentence(tmp_path: Path, kubelet: FakePodResources) -> None:
    dead = tmp_path / "dead.sock"
    dead.touch()
    with pytest.raises(PodResourcesError, match=r"the kubelet at .*dead.sock did not list .* \(unavailable\)"):
        PodResourcesClient(dead).list_assignments()


def test_a_kubelet_that_is_too_busy_is_a_sentence(kubelet: FakePodResources, client: PodResourcesClient) -> None:
    kubelet.fail(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
    with pytest.raises(PodResourcesError, match=r"\(resource-exhausted\): rejected by rate limit"):
        client.list_assignments()
    kubelet.recover()
    assert client.list_assignments() == {}


def test_a_kubelet_without_the_api_is_a_sentence(kubelet: FakePodResources, client: PodResourcesClient) -> None:
    kubelet.fail(grpc.StatusCode.UNIMPLEMENTED, "unknown service v1.PodResourcesLister")
    with pytest.raises(PodResourcesError, match="has no PodResources v1 API"):
        client.list_assignments()


def test_a_kubelet_that_does_not_answer_runs_into_the_deadline(
    kubelet: FakePodResources, client: PodResourcesClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podresources, "DEADLINE_SECONDS", 0.05)
    with kubelet._lock, pytest.raises(PodResourcesError, match=r"did not answer within 0\.05 s"):
        client.list_assignments()


def test_the_messages_stay_out_of_the_shared_descriptor_pool() -> None:
    device_plugin = descriptor_pb2.FileDescriptorProto(name="api.proto", package="v1", syntax="proto3")
    device_plugin.message_type.add(name="ListPodResourcesResponse")
    descriptor_pool.Default().Add(device_plugin)
    found = descriptor_pool.Default().FindMessageTypeByName("v1.ListPodResourcesResponse")
    assert found is not message_class("ListPodResourcesResponse").DESCRIPTOR
