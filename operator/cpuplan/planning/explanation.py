"""What an explanation consists of: the decision that is explained, and sentences with their sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..model.errors import CpuPlanError
from ..model.plan import CpuPlan, usable_count
from ..model.podplan import ContainerPlan
from ..model.topology import HostTopology, normalise_address

CPU_FOLDER = "/sys/devices/system/cpu"
NODE_FOLDER = "/sys/devices/system/node"
PCI_FOLDER = "/sys/bus/pci/devices"


class Topic(StrEnum):
    """What a sentence is about; an explanation keeps this order."""

    INPUT = "input"
    TOPOLOGY = "topology"
    POOL = "pool"
    TAKEN = "taken"
    REJECTED = "rejected"
    OUTCOME = "outcome"


@dataclass(frozen=True, slots=True)
class Source:
    """A file, by the name that the kernel gives it, and the value that stood there; None: no such file."""

    file: str
    value: str | None

    def __str__(self) -> str:
        return f"{self.file}: {'missing or malformed' if self.value is None else self.value or '(empty)'}"


@dataclass(frozen=True, slots=True)
class Sentence:
    """One reason, for people, with the files and values that it came from."""

    topic: Topic
    text: str
    sources: tuple[Source, ...] = ()


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

    @classmethod
    def of_container(cls, plan: ContainerPlan) -> Decision:
        """The decision that a published plan states."""
        addresses = _normalised([worker.address for worker in plan.workers])
        steps = tuple(worker.cpus for worker in plan.workers) if plan.pinned else ()
        return cls(
            plan.setting, addresses, plan.mask, plan.quota, plan.usable, steps, plan.result, plan.reason, plan.why
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
    return {cpu: name for name, plan in plans.items() for cpu in topology.whole_cores(plan.pinned)}


def _normalised(addresses: Sequence[str | None]) -> tuple[str | None, ...]:
    return tuple(None if address is None else normalise_address(address) for address in addresses)
