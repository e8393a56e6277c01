"""A device plugin that registers GPUs that do not exist with a real kubelet, and writes the device tree they need.

It stands alone (standard library, grpcio, protobuf), since it runs as this one file in a pod on every worker; see
fakegpus.py. The kubelet believes it: it counts the devices, allocates them and lists them in PodResources.

The device tree is the node's real CPU and NUMA files and, beside them, the PCI functions and driver files of the
plugin's GPUs, so that an agent whose roots point there sees a worker with GPUs.

Source: k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto at v0.37.2 for the field numbers;
Documentation/ABI/testing/sysfs-bus-pci of the Linux kernel for the PCI files.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

RESOURCE = "nvidia.com/gpu"
API_VERSION = "v1beta1"
PLUGIN_SOCKET = "cpuplan-fake-gpu.sock"
UNHEALTHY_FILE = "unhealthy"
"""In the tree's folder: device ids, one a line, that are reported unhealthy while they stand there."""

LOOK_SECONDS = 0.25
"""Pause between two looks at the kubelet's socket and the file of unhealthy devices."""

REGISTER_SECONDS = 10.0
"""Limit for the kubelet to answer a registration."""

_COPIED = (
    "devices/system/cpu/*",
    "devices/system/cpu/smt/*",
    "devices/system/cpu/cpu[0-9]*/online",
    "devices/system/cpu/cpu[0-9]*/cpu_capacity",
    "devices/system/cpu/cpu[0-9]*/topology/*",
    "devices/system/node/*",
    "devices/system/node/node[0-9]*/cpulist",
    "devices/system/node/node[0-9]*/distance",
)

log = logging.getLogger("deviceplugin")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that does not exist: its number on the node, device id, PCI address, and NUMA node (-1: unknown)."""

    index: int
    device_id: str
    address: str
    numa_node: int
    cpus: str


# --- The device tree ---------------------------------------------------------------------------------------------


def gpus_of(node_name: str, count: int, sysfs: Path) -> tuple[Gpu, ...]:
    """The node's GPUs: always the same ids for the same node, spread evenly over its NUMA nodes with CPUs."""
    folders = sorted((sysfs / "devices/system/node").glob("node[0-9]*"), key=lambda path: int(path.name[4:]))
    numa = [(int(path.name[4:]), cpus) for path in folders if (cpus := _text(path / "cpulist"))]
    numa = numa or [(-1, _text(sysfs / "devices/system/cpu/online") or "")]
    return tuple(
        Gpu(
            index,
            f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{index}.{node_name}')}",
            f"0000:{0x10 * (index + 1):02x}:00.0",
            *numa[index * len(numa) // count],
        )
        for index in range(count)
    )


def device_tree(gpus: Sequence[Gpu], sysfs: Path, proc: Path) -> dict[str, str]:
    """The files of the tree, by path below its folder."""
    files = {
        f"sys/{path.relative_to(sysfs)}": text
        for pattern in _COPIED
        for path in sorted(sysfs.glob(pattern))
        if path.is_file() and (text := _text(path)) is not None
    }
    boot_id = "sys/kernel/random/boot_id"
    files[f"proc/{boot_id}"] = _text(proc / boot_id) or ""
    for gpu in gpus:
        pci = f"sys/bus/pci/devices/{gpu.address}"
        files |= {
            f"{pci}/vendor": "0x10de",
            f"{pci}/device": "0x2330",
            f"{pci}/class": "0x030200",
            f"{pci}/numa_node": str(gpu.numa_node),
            f"{pci}/local_cpulist": gpu.cpus,
            f"proc/driver/nvidia/gpus/{gpu.address}/information": (
                f"Model: \t\t Fake GPU of the test cluster\nGPU UUID: \t {gpu.device_id}\n"
                f"Bus Type: \t PCIe\nBus Location: \t {gpu.address}\nDevice Minor: \t {gpu.index}\n"
            ),
        }
    return files


def write_tree(files: dict[str, str], folder: Path) -> None:
    """Makes `sys` and `proc` below the folder hold exactly these files; a reader sees each whole, old or new."""
    for top in ("sys", "proc"):
        for path in (folder / top).rglob("*"):
            if path.is_file() and str(path.relative_to(folder)) not in files:
                path.unlink()
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.partial")
        partial.write_text(text if text.endswith("\n") else f"{text}\n", encoding="utf-8")
        partial.rename(path)
    for top in ("sys", "proc"):
        for path in sorted((folder / top).rglob("*"), reverse=True):
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None


# --- The messages ------------------------------------------------------------------------------------------------

_STRING = FieldDescriptorProto.TYPE_STRING
_MESSAGES: dict[str, tuple[tuple[str, int, FieldDescriptorProto.Type.ValueType | str, bool], ...]] = {
    "Empty": (),
    "DevicePluginOptions": (),
    "RegisterRequest": (
        ("version", 1, _STRING, False),
        ("endpoint", 2, _STRING, False),
        ("resource_name", 3, _STRING, False),
    ),
    "NUMANode": (("ID", 1, FieldDescriptorProto.TYPE_INT64, False),),
    "TopologyInfo": (("nodes", 1, "NUMANode", True),),
    "Device": (("ID", 1, _STRING, False), ("health", 2, _STRING, False), ("topology", 3, "TopologyInfo", False)),
    "ListAndWatchResponse": (("devices", 1, "Device", True),),
    "ContainerAllocateRequest": (("devices_ids", 1, _STRING, True),),
    "AllocateRequest": (("container_requests", 1, "ContainerAllocateRequest", True),),
    "EnvsEntry": (("key", 1, _STRING, False), ("value", 2, _STRING, False)),
    "ContainerAllocateResponse": (("envs", 1, "EnvsEntry", True),),
    "AllocateResponse": (("container_responses", 1, "ContainerAllocateResponse", True),),
}
"""By message: field name, number, scalar type or message name, repeated. A map is a repeated key and value on the
wire, so EnvsEntry stands for one."""


def message_classes() -> dict[str, type[Message]]:
    """The classes of the device plugin API's messages, in a descriptor pool of their own."""
    file = FileDescriptorProto(name="deviceplugin.proto", package=API_VERSION, syntax="proto3")
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for name, number, kind, is_repeated in fields:
            field = message.field.add(name=name, number=number)
            field.label = field.LABEL_REPEATED if is_repeated else field.LABEL_OPTIONAL
            if isinstance(kind, str):
                field.type, field.type_name = field.TYPE_MESSAGE, f".{API_VERSION}.{kind}"
            else:
                field.type = kind
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{API_VERSION}.{name}")) for name in _MESSAGES}


# --- The plugin --------------------------------------------------------------------------------------------------


class DevicePlugin:
    """The plugin's service on its own socket, and its registration with the kubelet."""

    def __init__(self, gpus: Sequence[Gpu], *, sockets: Path, tree: Path, listed: Path) -> None:
        """Prepares it.

        Args:
            gpus: the devices of the node.
            sockets: the kubelet's folder of device plugin sockets.
            tree: the folder of the device tree.
            listed: a file that is made once the kubelet has the list of devices: pods with devices can start then.
        """
        self._listed_file = listed
        self._gpus = gpus
        self._kubelet_socket = sockets / "kubelet.sock"
        self._own_socket = sockets / PLUGIN_SOCKET
        self._unhealthy_file = tree / UNHEALTHY_FILE
        self._messages = message_classes()
        self._stopped = threading.Event()

    def run(self, *, reregister_after_seconds: float = 0.0) -> None:
        """Serves until `stop`, and starts anew whenever the kubelet has: it removes all plugins' sockets then.

        Args:
            reregister_after_seconds: how long the devices stay away after a restart of the kubelet.
        """
        while not self._stopped.is_set():
            try:
                self._serve_one_kubelet()
            except (OSError, grpc.RpcError) as error:
                log.warning("not registered: is the kubelet up? error=%s", error)
                self._stopped.wait(LOOK_SECONDS)
            else:
                self._stopped.wait(reregister_after_seconds)

    def stop(self) -> None:
        """Ends `run`."""
        self._stopped.set()

    def _serve_one_kubelet(self) -> None:
        """Registers with the kubelet that listens now, and serves it until it, or our socket, is gone."""
        kubelet = self._kubelet_socket.stat().st_ino
        self._own_socket.unlink(missing_ok=True)
        # Each watch keeps a thread; the kubelet has one, and an old one may linger a moment.
        server = grpc.server(ThreadPoolExecutor(max_workers=8))
        server.add_generic_rpc_handlers([self._handlers()])
        server.add_insecure_port(f"unix:{self._own_socket}")
        server.start()
        try:
            self._register()
            log.info("registered resource=%s devices=%d", RESOURCE, len(self._gpus))
            while not self._stopped.wait(LOOK_SECONDS) and self._own_socket.exists():
                if not self._kubelet_socket.exists() or self._kubelet_socket.stat().st_ino != kubelet:
                    break
        finally:
            server.stop(grace=None).wait()

    def _register(self) -> None:
        request = self._messages["RegisterRequest"](
            version=API_VERSION, endpoint=self._own_socket.name, resource_name=RESOURCE
        )
        # Without this option the authority is the socket's escaped path, which Go's gRPC refuses.
        options = [("grpc.default_authority", "localhost")]
        with grpc.insecure_channel(f"unix:{self._kubelet_socket}", options=options) as channel:
            call = channel.unary_unary(
                f"/{API_VERSION}.Registration/Register",
                request_serializer=self._messages["RegisterRequest"].SerializeToString,
                response_deserializer=self._messages["Empty"].FromString,
            )
            call(request, timeout=REGISTER_SECONDS)

    def _handlers(self) -> grpc.GenericRpcHandler:
        def unary(method: Callable[[Any, grpc.ServicerContext], Any], request: str) -> Any:
            return grpc.unary_unary_rpc_method_handler(
                method, self._messages[request].FromString, lambda answer: answer.SerializeToString()
            )

        watch: Any = grpc.unary_stream_rpc_method_handler(
            self._watch, self._messages["Empty"].FromString, lambda answer: answer.SerializeToString()
        )
        return grpc.method_handlers_generic_handler(
            f"{API_VERSION}.DevicePlugin",
            {
                "GetDevicePluginOptions": unary(lambda *_: self._messages["DevicePluginOptions"](), "Empty"),
                "ListAndWatch": watch,
                "Allocate": unary(self._allocate, "AllocateRequest"),
            },
        )

    def _watch(self, _request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        """The devices, now and whenever their health changes."""
        sent: list[Any] | None = None
        while context.is_active() and not self._stopped.is_set():
            devices = self._devices()
            if devices != sent:
                sent = devices
                yield self._messages["ListAndWatchResponse"](devices=devices)
                self._listed_file.touch()
            self._stopped.wait(LOOK_SECONDS)

    def _devices(self) -> list[Any]:
        unhealthy = (_text(self._unhealthy_file) or "").split()
        return [
            self._messages["Device"](
                ID=gpu.device_id,
                health="Unhealthy" if gpu.device_id in unhealthy else "Healthy",
                topology=None if gpu.numa_node < 0 else {"nodes": [{"ID": gpu.numa_node}]},
            )
            for gpu in self._gpus
        ]

    def _allocate(self, request: Any, _context: grpc.ServicerContext) -> Any:
        """Per container the variable that NVIDIA's runtime reads; there is nothing to mount."""
        answers = [
            {"envs": [{"key": "NVIDIA_VISIBLE_DEVICES", "value": ",".join(container.devices_ids)}]}
            for container in request.container_requests
        ]
        return self._messages["AllocateResponse"](container_responses=answers)


def main() -> None:
    """Writes the tree, then serves until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--node-name", default=os.environ.get("NODE_NAME"), help="default: NODE_NAME")
    parser.add_argument("--devices", type=int, default=4, help="GPUs of this node")
    parser.add_argument("--sockets", type=Path, default=Path("/var/lib/kubelet/device-plugins"))
    parser.add_argument("--tree", type=Path, required=True, help="folder for the device tree")
    parser.add_argument("--listed-file", type=Path, required=True, help="is made once the kubelet has the devices")
    parser.add_argument("--reregister-after-seconds", type=float, default=0.0)
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    sysfs = Path("/sys")
    gpus = gpus_of(chosen.node_name, chosen.devices, sysfs)
    write_tree(device_tree(gpus, sysfs, Path("/proc")), chosen.tree)
    plugin = DevicePlugin(gpus, sockets=chosen.sockets, tree=chosen.tree, listed=chosen.listed_file)
    signal.signal(signal.SIGTERM, lambda *_: plugin.stop())
    plugin.run(reregister_after_seconds=chosen.reregister_after_seconds)


if __name__ == "__main__":
    main()
