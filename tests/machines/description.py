"""Machines as compact descriptions: blocks of alike CPUs, memory-only nodes, GPUs and other PCI functions.

Each `NAME.toml` of this folder describes one machine from public facts (its `source` says which); the
sentences and numbers are ours. `writing.py` writes the files that its kernel would show.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpuplan.model.cpulist import parse_cpu_list

FOLDER = Path(__file__).parent

UNKNOWN_NODE = -1
"""A device's node where the firmware names none; the kernel then calls every online CPU local."""


@dataclass(frozen=True, slots=True)
class GpuModel:
    """What a product's PCI function says of itself."""

    vendor: str
    device: str
    pci_class: str
    title: str


# Source: the PCI ID database (pci-ids.ucw.cz); classes: 0300 VGA, 0302 3D controller, 1200 accelerator.
GPU_MODELS: Mapping[str, GpuModel] = {
    "t4": GpuModel("0x10de", "0x1eb8", "0x030200", "Tesla T4"),
    "v100": GpuModel("0x10de", "0x1db5", "0x030200", "Tesla V100-SXM2-32GB"),
    "l40s": GpuModel("0x10de", "0x26b9", "0x030200", "NVIDIA L40S"),
    "h100": GpuModel("0x10de", "0x2330", "0x030200", "NVIDIA H100 80GB HBM3"),
    "gh200": GpuModel("0x10de", "0x2342", "0x030200", "NVIDIA GH200 480GB"),
    "gb200": GpuModel("0x10de", "0x2941", "0x030200", "NVIDIA GB200"),
    "rtx4060-laptop": GpuModel("0x10de", "0x28e0", "0x030000", "NVIDIA GeForce RTX 4060 Laptop GPU"),
    "iris-xe": GpuModel("0x8086", "0xa7a0", "0x030000", "Iris Xe Graphics"),
    "mi300x": GpuModel("0x1002", "0x74a1", "0x120000", "AMD Instinct MI300X"),
    "mi300a": GpuModel("0x1002", "0x74a0", "0x120000", "AMD Instinct MI300A"),
}


@dataclass(frozen=True, slots=True)
class CpuBlock:
    """Alike CPUs of one node: each core has `threads`, numbered next to each other or in as many halves."""

    cpus: tuple[int, ...]
    node: int
    package: int
    threads: int
    is_split: bool

    def cores(self) -> list[tuple[int, ...]]:
        """The hardware threads of each core."""
        count = len(self.cpus) // self.threads
        if self.is_split:
            return [self.cpus[index::count] for index in range(count)]
        return [self.cpus[index * self.threads : (index + 1) * self.threads] for index in range(count)]


@dataclass(frozen=True, slots=True)
class MemoryNodes:
    """Nodes without CPUs, such as a GPU's memory; near the CPUs of `package`."""

    nodes: tuple[int, ...]
    package: int


@dataclass(frozen=True, slots=True)
class Function:
    """A PCI function. `title` is None for what is no GPU; `local` is None where the kernel derives it."""

    address: str
    vendor: str
    device: str
    pci_class: str
    node: int
    title: str | None = None
    local: str | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """One described machine."""

    name: str
    summary: str
    source: str
    blocks: tuple[CpuBlock, ...]
    memory_nodes: tuple[MemoryNodes, ...]
    functions: tuple[Function, ...]
    offline: frozenset[int]
    isolated: frozenset[int]

    @property
    def online(self) -> frozenset[int]:
        """The CPUs that the kernel schedules on."""
        return frozenset(cpu for block in self.blocks for cpu in block.cpus) - self.offline

    @property
    def gpu_addresses(self) -> tuple[str, ...]:
        """The GPUs' addresses, ascending."""
        return tuple(sorted(function.address for function in self.functions if function.title is not None))


def machine_names() -> tuple[str, ...]:
    """The names of all described machines."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def describe(name: str) -> Machine:
    """The description of one machine.

    Raises:
        FileNotFoundError: there is none of that name.
        KeyError, ValueError: its file is malformed.
    """
    text = (FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    return Machine(
        name=name,
        summary=document["summary"],
        source=document["source"],
        blocks=tuple(_block(block) for block in document["cpus"]),
        memory_nodes=tuple(
            MemoryNodes(tuple(sorted(parse_cpu_list(group["nodes"]))), group["package"])
            for group in document.get("memory_nodes", [])
        ),
        functions=(
            *(_gpu(gpu) for gpu in document.get("gpus", [])),
            *(_other_function(function) for function in document.get("functions", [])),
        ),
        offline=parse_cpu_list(document.get("offline", "")),
        isolated=parse_cpu_list(document.get("isolated", "")),
    )


def _block(block: Mapping[str, Any]) -> CpuBlock:
    cpus = tuple(sorted(parse_cpu_list(block["list"])))
    threads = block.get("threads", 1)
    if len(cpus) % threads:
        raise ValueError(f"{len(cpus)} CPUs ({block['list']}) do not make whole cores of {threads} threads")
    return CpuBlock(cpus, block["node"], block["package"], threads, block.get("numbering", "split") == "split")


def _gpu(gpu: Mapping[str, Any]) -> Function:
    model = GPU_MODELS[gpu["model"]]
    return Function(
        gpu["address"], model.vendor, model.device, model.pci_class, gpu["node"], model.title, gpu.get("local")
    )


def _other_function(function: Mapping[str, Any]) -> Function:
    return Function(function["address"], function["vendor"], function["device"], function["class"], function["node"])
