"""What an explanation consists of: the decision that is explained, and sentences with their sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ..model.cpulist import format_cpu_list
from ..model.errors import CpuPlanError
from ..model.plan import CpuPlan, usable_count
from ..model.podplan import ContainerPlan
from ..model.source import Source
from ..model.topology import HostGpu, HostTopology, NumaNode, normalise_address, with_core_mates

CPU_FOLDER = "/sys/devices/system/cpu"
NODE_FOLDER = "/sys/devices/system/node"
PCI_FOLDER = "/sys/bus/pci/devices"

MOST_SOURCES = 8
"""Files named behind one sentence: as many as an eight-GPU server has GPUs; hundreds of CPUs have one each."""

NOTHING: Mapping[str, str] = {}


class Topic(StrEnum):
    """What a sentence is about; an explanation keeps this order."""

    INPUT = "input"
    TOPOLOGY = "topology"
    POOL = "pool"
    TAKEN = "taken"
    REJECTED = "rejected"
    OUTCOME = "outcome"


@dataclass(frozen=True, slots=True)
class Sentence:
    """One reason, for people, with the files and values that it came from."""

    topic: Topic
    text: str
    sources: tuple[Source, ...] = ()

    def to_document(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "topic": str(self.topic),
            "text": self.text,
            "sources": [source.to_document() for source in self.sources],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Sentence:
        """What `to_document` wrote.

        Raises:
            KeyError, TypeError, ValueError: a field is missing or malformed.
        """
        sources = tuple(map(Source.from_document, document["sources"]))
        return cls(Topic(document["topic"]), str(document["text"]), sources)


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan as it was decided, whoever published it.

    Attributes:
        setting: the user's `step_thread_core`, unparsed.
        addresses: the normalised PCI address per worker, None without a device.
        mask: CPUs that the deployment may run on.
        quota: the tightest CPU limit in CPUs, None where there is none.
        usable: CPUs that the quota lets run at once, at least 1.
        steps: the CPUs per worker; none at all where no worker is pinned.
        step_whys: the sentence that was published per worker; empty where none was, or it was left out.
        result: the CPU of the result threads, or None.
        reason: a stable code (model/reasons.py).
        why: the sentence that was published.
    """

    setting: str
    addresses: tuple[str | None, ...]
    mask: frozenset[int]
    quota: float | None
    usable: int
    steps: tuple[frozenset[int], ...]
    result: int | None
    reason: str
    why: str
    step_whys: tuple[str, ...] = ()

    @classmethod
    def of_container(cls, plan: ContainerPlan) -> Decision:
        """The decision that a published plan states."""
        addresses = _normalised([worker.address for worker in plan.workers])
        pinned = plan.workers if plan.pinned else ()
        return cls(
            plan.setting,
            addresses,
            plan.mask,
            plan.quota,
            plan.usable,
            tuple(worker.cpus for worker in pinned),
            plan.result,
            plan.reason,
            plan.why,
            tuple(worker.why for worker in pinned),
        )

    @classmethod
    def of_plan(cls, setting: object, addresses: Sequence[str | None], plan: CpuPlan, quota: float | None) -> Decision:
        """The decision of a plan that was made for one deployment alone."""
        steps = tuple(frozenset[int]() if worker is None else worker.cpus for worker in plan.workers)
        return cls(
            str(setting),
            _normalised(addresses),
            plan.mask,
            quota,
            plan.usable,
            steps,
            plan.result,
            plan.reason,
            plan.why,
        )

    @classmethod
    def of_error(
        cls,
        setting: object,
        addresses: Sequence[str | None],
        mask: frozenset[int],
        quota: float | None,
        error: CpuPlanError,
    ) -> Decision:
        """The decision that a setting cannot be planned."""
        usable = usable_count(len(mask), quota)
        return cls(str(setting), _normalised(addresses), mask, quota, usable, (), None, error.reason, str(error))


def holders_of(plans: Mapping[str, ContainerPlan], topology: HostTopology) -> dict[int, str]:
    """Who holds each CPU, sibling threads included, from the neighbours' plans by their names."""
    core_mates = topology.core_mates()
    return {cpu: name for name, plan in plans.items() for cpu in with_core_mates(plan.pinned, core_mates)}


def siblings_source(topology: HostTopology, cpu: int) -> Source:
    """The sibling list of a CPU."""
    return Source(f"{CPU_FOLDER}/cpu{cpu}/topology/thread_siblings_list", format_cpu_list(topology.siblings_of(cpu)))


def node_source(node: NumaNode) -> Source:
    """The CPUs of a NUMA node."""
    return Source(f"{NODE_FOLDER}/node{node.node_id}/cpulist", format_cpu_list(node.cpus))


def number_source(gpu: HostGpu, placed_by: Mapping[str, str] = NOTHING) -> Source:
    """The NUMA node of a GPU, from sysfs or (by address) the override that placed it."""
    return Source(placed_by.get(gpu.address, f"{PCI_FOLDER}/{gpu.address}/numa_node"), gpu.node)


def local_source(gpu: HostGpu, placed_by: Mapping[str, str] = NOTHING) -> Source:
    """The local CPUs of a GPU, from sysfs or (by address) the override that placed it."""
    value = None if gpu.local is None else format_cpu_list(gpu.local)
    return Source(placed_by.get(gpu.address, f"{PCI_FOLDER}/{gpu.address}/local_cpulist"), value)


def _normalised(addresses: Sequence[str | None]) -> tuple[str | None, ...]:
    return tuple(None if address is None else normalise_address(address) for address in addresses)
