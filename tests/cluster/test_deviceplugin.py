"""The fake device plugin, against a kubelet's registration service in a folder."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from cpuplan.host.devices import place_device
from cpuplan.host.root import HostRoot
from cpuplan.host.sysfs import read_topology
from tests.cluster import deviceplugin
from tests.cluster.deviceplugin import DevicePlugin, device_tree, gpus_of, message_classes, write_tree

LIMIT_SECONDS = 20.0
MESSAGES = message_classes()


def until(condition: Callable[[], Any]) -> Any:
    """What the condition returns once that is true; AssertionError after LIMIT_SECONDS."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, "the condition did not come true"
        threading.Event().wait(0.02)
    return found


class Kubelet:
    """The kubelet's side of the device plugin API: it listens on kubelet.sock and takes registrations."""

    def __init__(self, sockets: Path) -> None:
        self.sockets = sockets
        self.registered: list[Any] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Listens for the block; like the real one it removes every socket in its folder first."""
        for socket in self.sockets.glob("*.sock"):
            socket.unlink()
        server = grpc.server(ThreadPoolExecutor(max_workers=2))
        register: Any = grpc.unary_unary_rpc_method_handler(
            self._register, MESSAGES["RegisterRequest"].FromString, lambda answer: answer.SerializeToString()
        )
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": register})]
        )
        server.add_insecure_port(f"unix:{self.sockets / 'kubelet.sock'}")
        server.start()
        try:
            yield
        finally:
            server.stop(grace=None).wait()

    def _register(self, request: Any, _context: grpc.ServicerContext) -> Any:
        self.registered.append(request)
        return MESSAGES["Empty"]()

    def call(self, method: str, request: Any, answer: str) -> Any:
        """The plugin's answer to one call on the socket that it registered."""
        with self._channel() as channel:
            called: Any = channel.unary_unary(
                f"/v1beta1.DevicePlugin/{method}",
                request_serializer=type(request).SerializeToString,
                response_deserializer=MESSAGES[answer].FromString,
            )
            return called(request, timeout=LIMIT_SECONDS)

    @contextmanager
    def watch(self) -> Iterator[Iterator[Any]]:
        """The plugin's device lists as they come."""
        with self._channel() as channel:
            watched: Any = channel.unary_stream(
                "/v1beta1.DevicePlugin/ListAndWatch",
                request_serializer=MESSAGES["Empty"].SerializeToString,
                response_deserializer=MESSAGES["ListAndWatchResponse"].FromString,
            )
            stream = watched(MESSAGES["Empty"](), timeout=LIMIT_SECONDS)
            yield stream
            stream.cancel()

    def _channel(self) -> grpc.Channel:
        socket = self.sockets / self.registered[-1].endpoint
        return grpc.insecure_channel(f"unix:{socket}", options=[("grpc.default_authority", "localhost")])


@pytest.fixture
def kubelet(tmp_path: Path) -> Kubelet:
    sockets = tmp_path / "sockets"
    sockets.mkdir()
    return Kubelet(sockets)


@pytest.fixture
def plugin(kubelet: Kubelet, tmp_path: Path, own_machine: Callable[[str], HostRoot]) -> Iterator[DevicePlugin]:
    gpus = gpus_of("worker-1", 2, own_machine("h100-server").sys)
    running = DevicePlugin(gpus, sockets=kubelet.sockets, tree=tmp_path, listed=tmp_path / "listed")
    thread = threading.Thread(target=running.run)
    thread.start()
    yield running
    running.stop()
    thread.join(LIMIT_SECONDS)
    assert not thread.is_alive()


@pytest.mark.usefixtures("plugin")
def test_the_plugin_registers_its_resource_with_the_kubelet(kubelet: Kubelet) -> None:
    with kubelet.running():
        until(lambda: kubelet.registered)
    request = kubelet.registered[0]
    assert (request.version, request.resource_name) == ("v1beta1", "nvidia.com/gpu")


@pytest.mark.usefixtures("plugin")
def test_the_plugin_registers_again_when_the_kubelet_restarts(kubelet: Kubelet) -> None:
    with kubelet.running():
        until(lambda: len(kubelet.registered) == 1)
    with kubelet.running():
        until(lambda: len(kubelet.registered) == 2)
        options = kubelet.call("GetDevicePluginOptions", MESSAGES["Empty"](), "DevicePluginOptions")
    assert options == MESSAGES["DevicePluginOptions"]()


@pytest.mark.usefixtures("plugin")
def test_a_device_named_in_the_file_of_unhealthy_ones_is_reported_until_it_is_taken_out(
    kubelet: Kubelet, tmp_path: Path
) -> None:
    unhealthy = tmp_path / deviceplugin.UNHEALTHY_FILE
    with kubelet.running():
        until(lambda: kubelet.registered)
        with kubelet.watch() as lists:
            first = next(lists).devices
            unhealthy.write_text(f"{first[1].ID}\n", encoding="utf-8")
            second = next(lists).devices
            unhealthy.unlink()
            third = next(lists).devices
    health = [[device.health for device in devices] for devices in (first, second, third)]
    assert health == [["Healthy", "Healthy"], ["Healthy", "Unhealthy"], ["Healthy", "Healthy"]]


@pytest.mark.usefixtures("plugin")
def test_a_file_says_that_the_kubelet_has_the_devices(kubelet: Kubelet, tmp_path: Path) -> None:
    listed = tmp_path / "listed"
    with kubelet.running():
        until(lambda: kubelet.registered)
        assert not listed.exists()
        with kubelet.watch() as lists:
            next(lists)
            until(listed.exists)


@pytest.mark.usefixtures("plugin")
def test_the_devices_stand_on_the_machines_numa_nodes(kubelet: Kubelet) -> None:
    with kubelet.running():
        until(lambda: kubelet.registered)
        with kubelet.watch() as lists:
            devices = next(lists).devices
    assert [[node.ID for node in device.topology.nodes] for device in devices] == [[0], [1]]


@pytest.mark.usefixtures("plugin")
def test_an_allocation_names_each_containers_devices_in_its_environment(kubelet: Kubelet) -> None:
    request = MESSAGES["AllocateRequest"](
        container_requests=[{"devices_ids": ["GPU-a", "GPU-b"]}, {"devices_ids": ["GPU-c"]}]
    )
    with kubelet.running():
        until(lambda: kubelet.registered)
        answer = kubelet.call("Allocate", request, "AllocateResponse")
    environments = [{entry.key: entry.value for entry in one.envs} for one in answer.container_responses]
    assert environments == [{"NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b"}, {"NVIDIA_VISIBLE_DEVICES": "GPU-c"}]


def test_a_node_keeps_its_device_ids_and_shares_none_with_another(own_machine: Callable[[str], HostRoot]) -> None:
    sysfs = own_machine("h100-server").sys
    ids = [[gpu.device_id for gpu in gpus_of(node, 4, sysfs)] for node in ("a", "a", "b")]
    assert ids[0] == ids[1]
    assert len({*ids[0], *ids[2]}) == 8


def test_the_tree_has_the_machines_cpus_and_places_every_device(
    tmp_path: Path, own_machine: Callable[[str], HostRoot]
) -> None:
    machine = own_machine("h100-server")
    gpus = gpus_of("worker-1", 4, machine.sys)
    write_tree(device_tree(gpus, machine.sys, machine.proc), tmp_path)
    written, real = read_topology(HostRoot.at(tmp_path)), read_topology(machine)
    assert (written.online, written.siblings, written.nodes) == (real.online, real.siblings, real.nodes)
    placed = [place_device(HostRoot.at(tmp_path), gpu.device_id) for gpu in gpus]
    assert [getattr(place, "address", place) for place in placed] == [gpu.address for gpu in gpus]


def test_a_tree_written_anew_with_fewer_devices_has_no_trace_of_the_others(
    tmp_path: Path, own_machine: Callable[[str], HostRoot]
) -> None:
    machine = own_machine("h100-server")
    write_tree(device_tree(gpus_of("w", 4, machine.sys), machine.sys, machine.proc), tmp_path)
    write_tree(device_tree(gpus_of("w", 1, machine.sys), machine.sys, machine.proc), tmp_path)
    found = [
        path.name
        for folder in ("sys/bus/pci/devices", "proc/driver/nvidia/gpus")
        for path in (tmp_path / folder).iterdir()
    ]
    assert found == ["0000:10:00.0", "0000:10:00.0"]
