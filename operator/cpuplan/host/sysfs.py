"""CPUs, cores, NUMA nodes and GPU-like PCI functions, read from a sysfs tree.

Source: Documentation/ABI/stable/sysfs-devices-system-cpu, .../sysfs-devices-node and
Documentation/ABI/testing/sysfs-bus-pci of the Linux kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from ..model.cpulist import parse_cpu_list
from ..model.topology import HostGpu, HostTopology, NumaNode, PciFunction, normalise_address
from .root import ATTRIBUTE_END_BYTES, HostRoot, names_in, read_content, read_text

THIS_HOST = HostRoot()

# PCI base classes of what an inference server may drive: display controllers (03), processing
# accelerators (12) and co-processors (0b40). A device outside them is found through `devices`.
GPU_CLASS_PREFIXES = ("0x03", "0x12", "0x0b40")

_CPU_NAME = re.compile(r"cpu([0-9]{1,6})", re.ASCII)
_NODE_NAME = re.compile(r"node([0-9]{1,6})", re.ASCII)
_DISTANCE = re.compile(r"[0-9]{1,6}", re.ASCII)


@lru_cache(maxsize=1024)
def _parse(content: bytes) -> frozenset[int] | None:
    """As read_cpu_list; remembered, since all threads of a core and all GPUs of a node have one text."""
    try:
        return parse_cpu_list(content.decode("utf-8", "replace"))
    except ValueError:
        return None


def read_cpu_list(path: Path | str) -> frozenset[int] | None:
    """The CPU set in a file; None where the file is missing, unreadable or malformed."""
    content = read_content(path, end_bytes=ATTRIBUTE_END_BYTES)
    return None if content is None else _parse(content)


def read_topology(root: HostRoot = THIS_HOST, devices: Iterable[str | None] = ()) -> HostTopology:
    """The host's topology; a missing or malformed file makes its fact unknown, never an error.

    Args:
        root: where the trees are.
        devices: PCI addresses whose kind (vendor and class) is looked at whatever their class.

    Raises:
        HostReadError: the tree has no CPUs at all, so it is no sysfs.
    """
    root.require_sysfs()
    online = read_online(root)
    return HostTopology(
        online=online,
        siblings=_read_all_siblings(online, root),
        functions=read_functions(root.pci_folder, devices),
        nodes=read_nodes(root),
        isolated=read_cpu_list(root.cpu_folder / "isolated") or frozenset(),
    )


def read_online(root: HostRoot = THIS_HOST) -> frozenset[int]:
    """The online CPUs; where the kernel's list is missing, the CPU folders whose `online` is not 0."""
    online = read_cpu_list(root.cpu_folder / "online")
    if online:
        return online
    numbers = (match[1] for name in names_in(root.cpu_folder) if (match := _CPU_NAME.fullmatch(name)))
    return frozenset(int(n) for n in numbers if read_text(root.cpu_folder / f"cpu{n}" / "online") != "0")


def read_siblings(cpu: int, root: HostRoot = THIS_HOST) -> frozenset[int]:
    """The hardware threads of the CPU's core, itself included; itself alone where that is unknown."""
    return _read_all_siblings([cpu], root)[cpu]


def _read_all_siblings(cpus: Iterable[int], root: HostRoot) -> dict[int, frozenset[int]]:
    folder = str(root.cpu_folder)
    siblings = {}
    for cpu in sorted(cpus):
        listed = read_cpu_list(f"{folder}/cpu{cpu}/topology/thread_siblings_list")
        siblings[cpu] = frozenset({cpu}) if listed is None else listed if cpu in listed else listed | {cpu}
    return siblings


def smt_siblings(cpu: int) -> frozenset[int]:
    """The hardware threads of the CPU's core on this host, itself included."""
    return read_siblings(cpu)


def read_nodes(root: HostRoot = THIS_HOST) -> tuple[NumaNode, ...]:
    """The NUMA nodes by number, those without CPUs included."""
    nodes = []
    for name in names_in(root.node_folder):
        match = _NODE_NAME.fullmatch(name)
        if match is None:
            continue
        folder = root.node_folder / name
        distances = tuple(int(d) for d in (read_text(folder / "distance") or "").split() if _DISTANCE.fullmatch(d))
        nodes.append(NumaNode(int(match[1]), read_cpu_list(folder / "cpulist") or frozenset(), distances))
    return tuple(sorted(nodes, key=lambda node: node.node_id))


def read_functions(pci_folder: Path, devices: Iterable[str | None] = ()) -> tuple[PciFunction, ...]:
    """The PCI functions that may be GPUs, and all of the kind of `devices`, in address order."""
    folder = str(pci_folder)
    wanted = {normalise_address(address) for address in devices if address is not None}
    classes = {name: found for name in names_in(folder) if (found := read_text(f"{folder}/{name}/class")) is not None}
    wanted_classes = {classes[name] for name in wanted if name in classes}
    candidates = [
        PciFunction(name, vendor, device_class, None, None)
        for name, device_class in classes.items()
        if (device_class in wanted_classes or device_class.startswith(GPU_CLASS_PREFIXES))
        and (vendor := read_text(f"{folder}/{name}/vendor")) is not None
    ]
    asked = [function for function in candidates if function.address in wanted]
    return tuple(
        replace(
            function,
            node=read_text(f"{folder}/{function.address}/numa_node"),
            local=read_cpu_list(f"{folder}/{function.address}/local_cpulist"),
        )
        for function in candidates
        if function.device_class.startswith(GPU_CLASS_PREFIXES) or any(function.is_like(other) for other in asked)
    )


def host_gpus(like: str | None, root: Path = THIS_HOST.pci_folder) -> list[HostGpu]:
    """Every PCI function of the vendor and class of the device at address `like`, in address order.

    Empty where `like` is None or sysfs does not know it.
    """
    if like is None:
        return []
    address = normalise_address(like)
    topology = HostTopology(frozenset(), {}, read_functions(root, [address]))
    return list(topology.gpus_like([address]))
