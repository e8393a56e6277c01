"""CPUs, cores, NUMA nodes and GPU-like PCI functions, read from a sysfs tree.

Source: Documentation/ABI/stable/sysfs-devices-system-cpu, .../sysfs-devices-node and
Documentation/ABI/testing/sysfs-bus-pci of the Linux kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from ..model.cpulist import parse_cpu_list
from ..model.topology import HostGpu, HostTopology, NumaNode, PciFunction, normalise_address
from .root import HostRoot, names_in, read_text

THIS_HOST = HostRoot()

# PCI base classes of what an inference server may drive: display controllers (03), processing
# accelerators (12) and co-processors (0b40). A device outside them is found through `devices`.
GPU_CLASS_PREFIXES = ("0x03", "0x12", "0x0b40")

_CPU_NAME = re.compile(r"cpu([0-9]{1,6})", re.ASCII)
_NODE_NAME = re.compile(r"node([0-9]{1,6})", re.ASCII)

# One sibling list is the text of every thread of a core, one local list that of every GPU of a node.
_parse = lru_cache(maxsize=1024)(parse_cpu_list)


def read_cpu_list(path: Path | str) -> frozenset[int] | None:
    """The CPU set in a file; None where the file is missing, unreadable or malformed."""
    text = read_text(path)
    if text is None:
        return None
    try:
        return _parse(text)
    except ValueError:
        return None


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
        siblings={cpu: read_siblings(cpu, root) for cpu in sorted(online)},
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
    siblings = read_cpu_list(f"{root.cpu_folder}/cpu{cpu}/topology/thread_siblings_list")
    return (siblings or frozenset()) | {cpu}


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
        distances = tuple(int(d) for d in (read_text(folder / "distance") or "").split() if d.isdigit())
        nodes.append(NumaNode(int(match[1]), read_cpu_list(folder / "cpulist") or frozenset(), distances))
    return tuple(sorted(nodes, key=lambda node: node.node_id))


def read_functions(pci_folder: Path, devices: Iterable[str | None] = ()) -> tuple[PciFunction, ...]:
    """The PCI functions that may be GPUs, and all of the kind of `devices`, in address order."""
    wanted = {normalise_address(address) for address in devices if address is not None}
    kinds: list[tuple[str, str, str]] = []
    for name in names_in(pci_folder):
        folder = f"{pci_folder}/{name}"
        vendor, device_class = read_text(f"{folder}/vendor"), read_text(f"{folder}/class")
        if vendor is not None and device_class is not None:
            kinds.append((name, vendor, device_class))
    asked = {(vendor, device_class) for name, vendor, device_class in kinds if name in wanted}
    return tuple(
        PciFunction(
            name,
            vendor,
            device_class,
            read_text(f"{pci_folder}/{name}/numa_node"),
            read_cpu_list(f"{pci_folder}/{name}/local_cpulist"),
        )
        for name, vendor, device_class in kinds
        if device_class.startswith(GPU_CLASS_PREFIXES) or (vendor, device_class) in asked
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
