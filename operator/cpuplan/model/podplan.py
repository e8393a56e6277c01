"""The plan of a pod as it is published: what each planned container pins, and what that is valid for.

The JSON form is the annotation `cpuplan.dev/plan` and the file `plan` inside the pod; its schema is
docs/plan.schema.json.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from . import reasons
from .cpulist import format_cpu_list, parse_cpu_list
from .errors import CpuPlanError
from .plan import CpuPlan, PoolSizes, StepCpus, size_pools
from .withheld import Withheld, withheld_document

POD_PLAN_VERSION = 1
"""Version of the JSON form; raised when a reader of the old form would misunderstand the new."""

_ALWAYS_ERRORS = frozenset(
    {reasons.INVALID_SETTING, reasons.OUTSIDE_MASK, reasons.TOO_FEW_CORES_ABOVE, reasons.CPU_GONE}
)
# `auto` pins nothing for these; a CPU number that meets them is an error.
_ERRORS_OF_NUMBERS = frozenset({reasons.CONFLICT, reasons.WOULD_PIN_ALL, reasons.OVER_SHARE})


class Status(StrEnum):
    """The annotation `cpuplan.dev/status`."""

    PINNED = "Pinned"
    NOT_PINNED = "NotPinned"
    OFF = "Off"
    ERROR = "Error"


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """One worker's device and the CPUs of its step threads (empty when it is not pinned)."""

    address: str | None
    uuid: str | None
    cpus: frozenset[int]
    why: str


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """The plan of one container, with every fact it came from.

    Attributes:
        setting: the user's `step_thread_core`.
        mask: CPUs that the plan is made on: those that the container may run on, less the withheld ones.
        quota: the tightest CPU limit in CPUs, None where there is none.
        usable: CPUs that the quota lets run at once, at least 1.
        devices: the kubelet's ids of the container's devices.
        workers: in worker order, pinned or not.
        result: the CPU of the API server's result threads, or None.
        pool_cpus: where pools should float: the mask less every pinned core of the node.
        confidence: how far the topology can be trusted (planning/confidence.py), now and when the pins were chosen.
        reason: a stable code (model/reasons.py).
        why: the sentence for people.
        shortage: the sentence that the quota is too small for the workers; empty where it is not.
        withheld: CPUs that the container may run on, and no pin uses; they are in the mask only where they are all
            that the container has.
        most_pinned: the bound on a pod's pinned CPUs (`agent.maxPinnedPerPod`) for which nothing is pinned; None
            where no bound is the reason.
        planned_confidence: the confidence when the pins were chosen, where that was a higher one; else empty.
    """

    setting: str
    mask: frozenset[int]
    quota: float | None
    usable: int
    devices: tuple[str, ...]
    workers: tuple[WorkerPlan, ...]
    result: int | None
    pool_cpus: frozenset[int]
    confidence: str
    reason: str
    why: str
    shortage: str = ""
    withheld: tuple[Withheld, ...] = ()
    most_pinned: int | None = None
    planned_confidence: str = ""

    @property
    def withheld_cpus(self) -> frozenset[int]:
        """All CPUs that the container may run on and no pin uses."""
        return frozenset(cpu for withheld in self.withheld for cpu in withheld.cpus)

    @property
    def pinned(self) -> frozenset[int]:
        """All CPUs that the container pins."""
        cpus = frozenset(cpu for worker in self.workers for cpu in worker.cpus)
        return cpus if self.result is None else cpus | {self.result}

    @property
    def pools(self) -> PoolSizes:
        """The pool sizes on what the pinned CPUs leave of the usable ones."""
        return size_pools(self.usable - len(self.pinned & self.mask))

    @property
    def status(self) -> Status:
        """What became of the container's request."""
        if self.reason == reasons.OFF:
            return Status.OFF
        if self.reason == reasons.PINNED:
            return Status.PINNED
        if self.reason in _ALWAYS_ERRORS or (self.setting != "auto" and self.reason in _ERRORS_OF_NUMBERS):
            return Status.ERROR
        return Status.NOT_PINNED

    def as_cpu_plan(self) -> CpuPlan:
        """The plan as the in-process library installs it."""
        is_pinned = any(worker.cpus for worker in self.workers)
        workers = tuple(StepCpus(w.cpus, w.why) if w.cpus else None for w in self.workers) if is_pinned else ()
        return CpuPlan(self.mask, self.usable, workers, self.result, self.why, self.reason)

    def to_document(self) -> dict[str, Any]:
        """The JSON object of this container; what came with later versions only where it says something."""
        pools = self.pools
        later: dict[str, Any] = {
            "shortage": self.shortage,
            "withheld": withheld_document(self.withheld),
            "mostPinned": self.most_pinned,
            "plannedConfidence": self.planned_confidence,
        }
        return {
            "setting": self.setting,
            "mask": format_cpu_list(self.mask),
            "quota": self.quota,
            "usable": self.usable,
            "devices": list(self.devices),
            "workers": [
                {"address": w.address, "uuid": w.uuid, "cpus": format_cpu_list(w.cpus), "why": w.why}
                for w in self.workers
            ],
            "result": self.result,
            "pools": {
                "preprocessThreads": pools.preprocess_threads,
                "pngThreads": pools.png_threads,
                "encodeWorkers": pools.encode_workers,
                "copyWorkers": pools.copy_workers,
            },
            "poolCpus": format_cpu_list(self.pool_cpus),
            "confidence": self.confidence,
            "reason": self.reason,
            "why": self.why,
            **{name: value for name, value in later.items() if value not in ("", {}, None)},
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ContainerPlan:
        """The plan that `to_document` wrote.

        Raises:
            KeyError, TypeError, ValueError: a field is missing or malformed.
        """
        quota, result, most_pinned = document["quota"], document["result"], document.get("mostPinned")
        return cls(
            setting=_text(document["setting"]),
            mask=parse_cpu_list(document["mask"]),
            quota=None if quota is None else _quota(quota),
            usable=_count(document["usable"], least=1),
            devices=tuple(_text(device) for device in document["devices"]),
            workers=tuple(
                WorkerPlan(
                    _text_or_none(w["address"]), _text_or_none(w["uuid"]), parse_cpu_list(w["cpus"]), _text(w["why"])
                )
                for w in document["workers"]
            ),
            result=None if result is None else _count(result),
            pool_cpus=parse_cpu_list(document["poolCpus"]),
            confidence=_text(document["confidence"]),
            reason=_text(document["reason"]),
            why=_text(document["why"]),
            shortage=_text(document.get("shortage", "")),
            withheld=tuple(Withheld(why, parse_cpu_list(cpus)) for why, cpus in document.get("withheld", {}).items()),
            most_pinned=None if most_pinned is None else _count(most_pinned, least=1),
            planned_confidence=_text(document.get("plannedConfidence", "")),
        )


@dataclass(frozen=True, slots=True)
class PodPlan:
    """All planned containers of a pod, and what the plan is valid for.

    `generation` rises by one with every change that is published; `containers` are in the pod's order.
    """

    generation: int
    pod_uid: str
    boot_id: str
    node: str
    containers: tuple[tuple[str, ContainerPlan], ...]

    @property
    def status(self) -> Status:
        """The pod's status: an error of any container, else pinned if any is, else off if all are."""
        found = {plan.status for _, plan in self.containers}
        for status in (Status.ERROR, Status.PINNED, Status.NOT_PINNED):
            if status in found:
                return status
        return Status.OFF

    def container(self, name: str) -> ContainerPlan | None:
        """The plan of one container, None where it is not planned."""
        return next((plan for container, plan in self.containers if container == name), None)

    def says_the_same_as(self, other: PodPlan) -> bool:
        """Whether both publish the same facts, whatever their generations."""
        return (self.pod_uid, self.boot_id, self.node, self.containers) == (
            other.pod_uid,
            other.boot_id,
            other.node,
            other.containers,
        )

    def to_json(self) -> str:
        """One line of JSON that `from_json` reads back to an equal plan."""
        return json.dumps(
            {
                "version": POD_PLAN_VERSION,
                "generation": self.generation,
                "podUID": self.pod_uid,
                "bootID": self.boot_id,
                "node": self.node,
                "containers": {name: plan.to_document() for name, plan in self.containers},
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> PodPlan:
        """The plan that `to_json` wrote.

        Raises:
            CpuPlanError: `invalid-plan`: the text is no plan, or one of another version.
        """
        try:
            document: Any = json.loads(text)
            version = document["version"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise _not_a_plan(f"expected a JSON object with a version, got {text[:60]!r}") from error
        if version != POD_PLAN_VERSION:
            raise _not_a_plan(f"version {version!r}, this reader understands version {POD_PLAN_VERSION}")
        try:
            return cls(
                generation=_count(document["generation"]),
                pod_uid=_text(document["podUID"]),
                boot_id=_text(document["bootID"]),
                node=_text(document["node"]),
                containers=tuple(
                    (_text(name), ContainerPlan.from_document(plan)) for name, plan in document["containers"].items()
                ),
            )
        except KeyError as error:
            raise _not_a_plan(f"the field {error.args[0]} is missing") from error
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            raise _not_a_plan(f"a field is malformed: {error}") from error


def _count(value: object, *, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{value!r} is not a whole number of at least {least}")
    return value


def _quota(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise ValueError(f"quota is {value!r}, expected CPUs as a number of at least 0, or null")
    return float(value)


def _text(value: object) -> str:
    """The text; half of a surrogate pair, which JSON can name and nothing can write, is none."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    value.encode()
    return value


def _text_or_none(value: object) -> str | None:
    return None if value is None else _text(value)


def _not_a_plan(what: str) -> CpuPlanError:
    return CpuPlanError(f"not a published plan: {what}", reason=reasons.INVALID_PLAN)
