"""What the host has: PCI functions, NUMA nodes and the cores that CPUs belong to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

_PCI_ADDRESS = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])", re.ASCII | re.IGNORECASE)

Core = tuple[int, ...]
"""The hardware threads of one physical core, ascending."""


def normalise_address(address: str) -> str:
    """A PCI address as sysfs names it: lower case, four domain digits unless more are needed.

    `00000000:1B:00.0` (NVML) becomes `0000:1b:00.0`; text that is no address is only lowered, since
    it will not be found in sysfs and then counts as unknown.
    """
    match = _PCI_ADDRESS.fullmatch(address.strip())
    if match is None:
        return address.strip().lower()
    domain = int(match[1] or "0", 16)
    return f"{domain:04x}:{int(match[2], 16):02x}:{int(match[3], 16):02x}.{match[4]}"


def is_pci_address(text: str) -> bool:
    """Whether the text is a PCI address, in any of the usual forms."""
    return _PCI_ADDRESS.fullmatch(text.strip()) is not None


class HostGpu(NamedTuple):
    """A GPU of the host: its address, its `numa_node` text and the CPUs of its `local_cpulist`.

    `node` is None where the file is missing; `local` is None where it cannot be read or parsed.
    """

    address: str
    node: str | None
    local: frozenset[int] | None


@dataclass(frozen=True, slots=True)
class PciFunction:
    """A PCI function that may be a GPU: sysfs `vendor` and `class` texts, then as HostGpu."""

    address: str
    vendor: str
    device_class: str
    node: str | None
    local: frozenset[int] | None

    def is_like(self, other: PciFunction) -> bool:
        """Whether both are of one vendor and class, that is, the same kind of device."""
        return (self.vendor, self.device_class) == (other.vendor, other.device_class)


@dataclass(frozen=True, slots=True)
class GpuPlacement:
    """Where an administrator says a GPU is; `cpus` None means those of the node."""

    address: str
    node: int
    cpus: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class NumaNode:
    """A NUMA node: its CPUs (empty for a memory-only node) and its distances to nodes by id."""

    node_id: int
    cpus: frozenset[int]
    distances: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class HostTopology:
    """A host's CPUs and GPU-like PCI functions at one moment.

    `siblings` maps each online CPU to the CPUs of its core; `functions` are in address order.
    `isolated` are the CPUs that the kernel command line keeps from the scheduler.
    """

    online: frozenset[int]
    siblings: Mapping[int, frozenset[int]]
    functions: tuple[PciFunction, ...] = ()
    nodes: tuple[NumaNode, ...] = ()
    isolated: frozenset[int] = field(default_factory=frozenset)

    def siblings_of(self, cpu: int) -> frozenset[int]:
        """The CPUs of the core of `cpu`; the CPU alone where nothing is known of it."""
        return self.siblings.get(cpu, frozenset({cpu})) | {cpu}

    def function(self, address: str) -> PciFunction | None:
        """The function at an address, None where the host has none that could be a GPU."""
        wanted = normalise_address(address)
        return next((f for f in self.functions if f.address == wanted), None)

    def gpus_like(self, addresses: Iterable[str | None]) -> tuple[HostGpu, ...]:
        """All functions of the vendor and class of the first address that the host knows."""
        for address in addresses:
            first = None if address is None else self.function(address)
            if first is not None:
                return tuple(HostGpu(f.address, f.node, f.local) for f in self.functions if f.is_like(first))
        return ()

    def core_mates(self) -> Mapping[int, frozenset[int]]:
        """Every hardware thread that shares a core with a CPU, the CPU among them, for all CPUs anything is known of.

        Sibling lists may be asymmetric; two CPUs share a core when either of the two names the other.
        """
        mates = {cpu: {cpu, *others} for cpu, others in self.siblings.items()}
        for cpu, others in self.siblings.items():
            for other in others:
                mates.setdefault(other, {other}).add(cpu)
        return {cpu: frozenset(together) for cpu, together in mates.items()}


def with_core_mates(cpus: Iterable[int], core_mates: Mapping[int, frozenset[int]]) -> frozenset[int]:
    """The CPUs together with their mates, as `HostTopology.core_mates` tells them."""
    wanted = frozenset(cpus)
    return wanted.union(*(core_mates.get(cpu, ()) for cpu in wanted))
