"""Grouping CPUs into cores, and the pools of cores that belong to a NUMA node's GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from ..model.topology import Core, HostGpu, normalise_address

Siblings = Callable[[int], frozenset[int]]
"""The CPUs of a CPU's core on the host; the CPU itself need not be among them."""

WHOLE_MASK = "the whole mask"
"""Name of the pool of a worker whose device is not among the host's GPUs, or that has none."""


def cores_of(cpus: frozenset[int], siblings: Siblings) -> tuple[Core, ...]:
    """The cores formed within `cpus`, ordered by their CPUs; each core's CPUs ascend.

    With asymmetric sibling lists two cores can share a CPU; whoever takes cores compares by CPU.
    """
    return tuple(sorted({core_of(cpu, cpus, siblings) for cpu in cpus}))


def core_of(cpu: int, cpus: frozenset[int], siblings: Siblings) -> Core:
    """The core of a CPU, formed within `cpus`; a CPU always belongs to its own core."""
    together = siblings(cpu)
    if cpu not in together:
        together |= {cpu}
    return _in_order(together if together <= cpus else together & cpus)


@lru_cache(maxsize=8192)
def _in_order(cpus: frozenset[int]) -> Core:
    """The CPUs ascending; remembered, since a host's cores come again with every mask."""
    return tuple(sorted(cpus))


def has_taken(core: Core, taken: Iterable[int]) -> bool:
    """Whether any CPU of the core is among the taken ones."""
    return not frozenset(taken).isdisjoint(core)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a GPU's cores are: a pool, the GPU's rank in it, and how many GPUs share it.

    Attributes:
        cores: the pool, in core order.
        rank: the GPU's place among the pool's GPUs, from 0.
        count: how many GPUs share the pool, at least 1.
        name: what the pool is, for people: `NUMA node 0`, `an unknown NUMA node`, `the whole mask`.
    """

    cores: tuple[Core, ...]
    rank: int
    count: int
    name: str

    @property
    def is_large_enough(self) -> bool:
        """Whether each GPU finds one core at the bottom and one at the top."""
        return len(self.cores) >= 2 * self.count


def places_of(gpus: Sequence[HostGpu], mask: frozenset[int], siblings: Siblings) -> dict[str, Place]:
    """The place of every host GPU, by address.

    1. Group the GPUs by node, in order of first appearance.
    2. A node whose first GPU has a local CPU in the mask has its own pool; where that pool is large
       enough, its lowest and highest `count` cores are claimed.
    3. All other GPUs share the cores of the mask that nobody claimed.
    """
    by_node: dict[str | None, list[HostGpu]] = {}
    for gpu in gpus:
        by_node.setdefault(gpu.node, []).append(gpu)

    places: dict[str, Place] = {}
    claimed: set[int] = set()
    homeless: list[HostGpu] = []
    for node, members in by_node.items():
        local = (members[0].local or frozenset()) & mask
        if not local:
            homeless.extend(members)
            continue
        pool, count = cores_of(local, siblings), len(members)
        for rank, gpu in enumerate(members):
            places[gpu.address] = Place(pool, rank, count, _pool_name(node))
        if len(pool) >= 2 * count:
            claimed.update(cpu for core in pool[:count] + pool[-count:] for cpu in core)

    if homeless:
        rest = tuple(core for core in cores_of(mask, siblings) if not has_taken(core, claimed))
        wanted = [gpu for gpu in gpus if gpu in homeless]
        for rank, gpu in enumerate(wanted):
            places[gpu.address] = Place(rest, rank, len(wanted), "the CPUs that no GPU's NUMA node claims")
    return places


def _pool_name(node: str | None) -> str:
    return "an unknown NUMA node" if node in (None, "-1") else f"NUMA node {node}"


class Geometry:
    """How a host's cores and GPUs lie to each other; remembers what it worked out for a mask.

    A node plans many deployments that share one mask: their pools are formed once.
    """

    def __init__(self, gpus: Sequence[HostGpu], siblings: Siblings) -> None:
        self._gpus = tuple(gpus)
        self._siblings = cache(siblings)
        self._cores: dict[frozenset[int], tuple[Core, ...]] = {}
        self._places: dict[frozenset[int], dict[str, Place]] = {}

    def core(self, cpu: int, mask: frozenset[int]) -> Core:
        """The core of one CPU of the mask, formed within the mask."""
        return core_of(cpu, mask, self._siblings)

    def cores(self, mask: frozenset[int]) -> tuple[Core, ...]:
        """The cores of the mask, in core order."""
        if mask not in self._cores:
            self._cores[mask] = cores_of(mask, self._siblings)
        return self._cores[mask]

    def place(self, key: str | None, mask: frozenset[int]) -> Place:
        """The place of a device; the whole mask for itself where the device is not among the host's GPUs."""
        if mask not in self._places:
            self._places[mask] = places_of(self._gpus, mask, self._siblings)
        known = None if key is None else self._places[mask].get(key)
        return known or Place(self.cores(mask), 0, 1, WHOLE_MASK)


def device_key(address: str | None) -> str | None:
    """What tells devices apart: the normalised address; None for a worker without one."""
    return None if address is None else normalise_address(address)
