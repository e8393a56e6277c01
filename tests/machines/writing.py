"""Writes a described machine as the files its kernel shows: sysfs, procfs and an empty cgroup v2."""

from __future__ import annotations

import uuid
from pathlib import Path

from cpuplan.host.root import HostRoot
from cpuplan.model.cpulist import format_cpu_list

from .description import UNKNOWN_NODE, Function, Machine, describe

_NAMESPACE = uuid.UUID("6f1d9b0e-2f0a-4f6e-9a53-5d1a6f3c8e10")
"""Any fixed UUID: the machines' UUIDs are derived from their names, so every tree is written alike."""

# ACPI distances (SLIT): 10 is the node itself; the others are usual for two-socket servers and Grace.
_OWN, _SAME_PACKAGE, _OTHER_PACKAGE, _MEMORY, _OTHER_MEMORY = 10, 12, 32, 80, 120


def write_machine(name: str, folder: Path) -> HostRoot:
    """The trees of the described machine `name`, written below `folder`.

    Raises:
        FileNotFoundError: no machine is described under that name.
    """
    machine = describe(name)
    root = HostRoot.at(folder)
    for path, text in _files(machine).items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{text}\n", encoding="utf-8")
    return root


def gpu_uuid(machine: str, address: str) -> str:
    """The UUID of a described machine's NVIDIA GPU, as its driver names it."""
    return f"GPU-{uuid.uuid5(_NAMESPACE, f'{machine} {address}')}"


def boot_id(machine: str) -> str:
    """The boot id of a described machine."""
    return str(uuid.uuid5(_NAMESPACE, f"{machine} boot"))


def _files(machine: Machine) -> dict[str, str]:
    """The text of every file, by its path below the root."""
    files = _cpu_files(machine) | _node_files(machine) | _process_files(machine)
    for number, function in enumerate(sorted(machine.functions, key=lambda f: f.address)):
        files |= _function_files(machine, function, irq=40 + number)
    for minor, address in enumerate(machine.gpu_addresses):
        gpu = next(function for function in machine.functions if function.address == address)
        if gpu.vendor == "0x10de":
            files[f"proc/driver/nvidia/gpus/{address}/information"] = _nvidia_information(machine, gpu, minor)
    return files


def _cpu_files(machine: Machine) -> dict[str, str]:
    base = "sys/devices/system/cpu"
    present = machine.online | machine.offline
    files = {
        f"{base}/online": format_cpu_list(machine.online),
        f"{base}/offline": format_cpu_list(machine.offline),
        f"{base}/present": format_cpu_list(present),
        f"{base}/possible": format_cpu_list(present),
        f"{base}/isolated": format_cpu_list(machine.isolated),
    }
    for block in machine.blocks:
        for core in block.cores():
            threads = [cpu for cpu in core if cpu in machine.online]
            for cpu in threads:
                topology = f"{base}/cpu{cpu}/topology"
                files[f"{topology}/thread_siblings_list"] = format_cpu_list(threads)
                files[f"{topology}/core_cpus_list"] = format_cpu_list(threads)
                files[f"{topology}/core_id"] = str(core[0])
                files[f"{topology}/physical_package_id"] = str(block.package)
    return files


def _node_files(machine: Machine) -> dict[str, str]:
    base = "sys/devices/system/node"
    packages = {block.node: block.package for block in machine.blocks}
    memory = {node: group.package for group in machine.memory_nodes for node in group.nodes}
    nodes = sorted({**packages, **memory})
    if not nodes:
        return {}
    files = {
        f"{base}/online": format_cpu_list(nodes),
        f"{base}/possible": format_cpu_list(nodes),
        f"{base}/has_cpu": format_cpu_list(packages),
    }
    everything = {**memory, **packages}
    for node in nodes:
        files[f"{base}/node{node}/cpulist"] = format_cpu_list(_node_cpus(machine, node))
        distances = [
            _distance(
                is_self=node == other,
                is_near=everything[node] == everything[other],
                is_memory=node in memory or other in memory,
            )
            for other in nodes
        ]
        files[f"{base}/node{node}/distance"] = " ".join(map(str, distances))
    return files


def _distance(*, is_self: bool, is_near: bool, is_memory: bool) -> int:
    if is_self:
        return _OWN
    if is_memory:
        return _MEMORY if is_near else _OTHER_MEMORY
    return _SAME_PACKAGE if is_near else _OTHER_PACKAGE


def _node_cpus(machine: Machine, node: int) -> frozenset[int]:
    return frozenset(c for block in machine.blocks if block.node == node for c in block.cpus) & machine.online


def _function_files(machine: Machine, function: Function, *, irq: int) -> dict[str, str]:
    base = f"sys/bus/pci/devices/{function.address}"
    local = machine.online if function.node == UNKNOWN_NODE else _node_cpus(machine, function.node)
    return {
        f"{base}/vendor": function.vendor,
        f"{base}/device": function.device,
        f"{base}/class": function.pci_class,
        f"{base}/irq": str(irq),
        f"{base}/numa_node": str(function.node),
        f"{base}/local_cpulist": format_cpu_list(local) if function.local is None else function.local,
    }


def _nvidia_information(machine: Machine, gpu: Function, minor: int) -> str:
    return "\n".join(
        [
            f"Model: \t\t {gpu.title}",
            f"IRQ:   \t\t {40 + minor}",
            f"GPU UUID: \t {gpu_uuid(machine.name, gpu.address)}",
            "Video BIOS: \t ??.??.??.??.??",
            "Bus Type: \t PCIe",
            "DMA Size: \t 52 bits",
            "DMA Mask: \t 0xfffffffffffff",
            f"Bus Location: \t {gpu.address}",
            f"Device Minor: \t {minor}",
            "GPU Excluded:\t No",
        ]
    )


def _process_files(machine: Machine) -> dict[str, str]:
    """What a process of the shared pool sees of itself, on a host with a unified cgroup v2."""
    online = format_cpu_list(machine.online)
    return {
        "proc/sys/kernel/random/boot_id": boot_id(machine.name),
        "proc/self/status": f"Name:\tcpuplan\nCpus_allowed_list:\t{online}",
        "proc/self/cgroup": "0::/",
        "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime - cgroup2 cgroup2 rw",
        "sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids",
        "sys/fs/cgroup/cpuset.cpus.effective": online,
    }
