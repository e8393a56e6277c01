"""The plan of one deployment: what is pinned, how large the pools may be, and why."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

from . import reasons
from .cpulist import format_cpu_list, parse_cpu_list
from .errors import CpuPlanError

PLAN_VERSION = 1
"""Version of the JSON form; raised when a reader of the old form would misunderstand the new."""

# Bounds of the pools, from the engine design that this plan serves: preprocessing gains nothing beyond
# four threads, one PNG deflates on at most eight, and four outputs are encoded at once at most.
MOST_PREPROCESS_THREADS = 4
MOST_PNG_THREADS = 8
MOST_ENCODE_WORKERS = 4


def usable_count(mask_size: int, quota: float | None) -> int:
    """CPUs that the quota lets run at once out of a mask of `mask_size` CPUs, at least 1."""
    return max(1, mask_size if quota is None else min(mask_size, int(quota)))


class StepCpus(NamedTuple):
    """The CPUs that one worker's step threads share, and the sentence that says why these."""

    cpus: frozenset[int]
    why: str


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """Threads or processes per pool, all at least 1; `left` is the CPUs that they share."""

    left: int
    preprocess_threads: int
    png_threads: int
    encode_workers: int
    copy_workers: int


def size_pools(left: int) -> PoolSizes:
    """Pool sizes for `left` CPUs; encode_workers x png_threads stays within `left`."""
    left = max(1, left)
    png_threads = min(MOST_PNG_THREADS, left)
    encode_workers = max(1, min(MOST_ENCODE_WORKERS, left // png_threads))
    return PoolSizes(
        left=left,
        preprocess_threads=max(1, min(MOST_PREPROCESS_THREADS, left // 4)),
        png_threads=png_threads,
        encode_workers=encode_workers,
        copy_workers=max(1, left // encode_workers),
    )


@dataclass(frozen=True, slots=True)
class CpuPlan:
    """What is decided for one deployment, equal to every plan made from the same facts.

    Attributes:
        mask: CPUs that the processes may run on.
        usable: how many of them the quota lets run at once, at least 1.
        workers: per worker in the deployment's order; empty when no worker is pinned.
        result: the CPU of the API server's result threads, or None.
        why: a sentence for people.
        reason: a stable code for programs (model/reasons.py).
    """

    mask: frozenset[int]
    usable: int
    workers: tuple[StepCpus | None, ...] = ()
    result: int | None = None
    why: str = "step_thread_core off"
    reason: str = reasons.OFF

    @property
    def pinned(self) -> frozenset[int]:
        """All CPUs that this plan pins."""
        cpus = reduce(frozenset.union, (w.cpus for w in self.workers if w is not None), frozenset[int]())
        return cpus if self.result is None else cpus | {self.result}

    @property
    def pools(self) -> PoolSizes:
        """The pool sizes on what the pinned CPUs leave."""
        return size_pools(self.usable - len(self.pinned & self.mask))

    @property
    def left(self) -> int:
        """CPUs that the pools share, at least 1."""
        return self.pools.left

    @property
    def preprocess_threads(self) -> int:
        """Intra-op threads of the API server."""
        return self.pools.preprocess_threads

    @property
    def png_threads(self) -> int:
        """Threads that one PNG deflates on."""
        return self.pools.png_threads

    @property
    def encode_workers(self) -> int:
        """Outputs that are encoded at once."""
        return self.pools.encode_workers

    @property
    def copy_workers(self) -> int:
        """Threads that one large output read copies over."""
        return self.pools.copy_workers

    def to_json(self) -> str:
        """One line of JSON that `from_json` reads back to an equal plan."""
        import json  # noqa: PLC0415 - a fifth of the time that importing cpuplan may take

        return json.dumps(
            {
                "version": PLAN_VERSION,
                "mask": format_cpu_list(self.mask),
                "usable": self.usable,
                "workers": [
                    None if w is None else {"cpus": format_cpu_list(w.cpus), "why": w.why} for w in self.workers
                ],
                "result": self.result,
                "why": self.why,
                "reason": self.reason,
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> CpuPlan:
        """The plan that `to_json` wrote.

        Raises:
            CpuPlanError: the text is no plan, or one of another version.
        """
        import json  # noqa: PLC0415 - as in to_json

        try:
            document: Any = json.loads(text)
            version = document["version"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise _not_a_plan(f"expected a JSON object with a version, got {text[:60]!r}") from error
        if version != PLAN_VERSION:
            raise _not_a_plan(f"version {version!r}, this reader understands version {PLAN_VERSION}")
        try:
            return cls(
                mask=parse_cpu_list(document["mask"]),
                usable=_positive(document["usable"]),
                workers=tuple(
                    None if w is None else StepCpus(parse_cpu_list(w["cpus"]), str(w["why"]))
                    for w in document["workers"]
                ),
                result=None if document["result"] is None else _cpu(document["result"]),
                why=str(document["why"]),
                reason=str(document["reason"]),
            )
        except KeyError as error:
            raise _not_a_plan(f"the field {error.args[0]} is missing") from error
        except (ValueError, TypeError, AttributeError) as error:
            raise _not_a_plan(f"a field is malformed: {error}") from error


def _positive(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"usable is {value!r}, expected a whole number of at least 1")
    return value


def _cpu(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"result is {value!r}, expected a CPU number or null")
    return value


def _not_a_plan(what: str) -> CpuPlanError:
    return CpuPlanError(f"not a CPU plan: {what}", reason=reasons.INVALID_PLAN)
