"""The plan of one deployment, alone or beside neighbours on its node.

`plan_deployment` follows the numbered steps of the specification: a CPU number N, or `auto`. Neighbours
(other deployments of the node) only ever take cores away; without any, the plan is the same for every
process that computes it from the same host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..model import reasons
from ..model.cpulist import format_cpu_list
from ..model.errors import CpuPlanError
from ..model.plan import CpuPlan, StepCpus
from ..model.topology import Core
from .budget import counted
from .cores import WHOLE_MASK, Geometry, Place, device_key, has_taken
from .setting import AUTO, Setting, is_off, parse_setting


@dataclass(frozen=True, slots=True)
class Neighbours:
    """What other deployments of the node hold.

    Attributes:
        cores: all CPUs of every core they pin, siblings included.
        holder_of: names the deployment that holds a CPU.
    """

    cores: frozenset[int] = frozenset()
    holder_of: Callable[[int], str] = field(default=lambda cpu: f"the holder of CPU {cpu}")

    def holders(self, cpus: Sequence[int]) -> str:
        """The names of those who hold any of the CPUs, for a sentence."""
        return ", ".join(dict.fromkeys(self.holder_of(cpu) for cpu in cpus if cpu in self.cores))


class _CannotPin(Exception):  # noqa: N818 - not an error: the plan without pins is the answer
    """Ends `auto` with an unpinned plan; carries the reason code and the sentence."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason, self.why = reason, why


ALONE = Neighbours()


def plan_deployment(
    setting: object,
    addresses: Sequence[str | None],
    *,
    mask: frozenset[int],
    usable: int,
    geometry: Geometry,
    is_pinnable: bool = True,
    neighbours: Neighbours = ALONE,
) -> CpuPlan:
    """The plan for one deployment.

    Args:
        setting: `off`, `auto` or a CPU number, as an int or decimal text.
        addresses: one PCI address, or None, per worker.
        mask: CPUs that the processes may run on.
        usable: CPUs that the quota lets run at once, at least 1.
        geometry: the cores, and every host GPU of the kind of the deployment's first known device,
            in address order.
        is_pinnable: whether this platform can set affinity.
        neighbours: what other deployments of the node hold.

    Raises:
        CpuPlanError: the setting is invalid, or its CPU number cannot be planned.
    """
    if is_off(setting):
        return CpuPlan(mask, usable)
    if not is_pinnable:
        why = "nothing is pinned: this platform cannot set CPU affinity"
        return CpuPlan(mask, usable, why=why, reason=reasons.UNSUPPORTED)
    wanted = parse_setting(setting)
    if wanted == AUTO:
        try:
            workers, result = _auto(addresses, mask, geometry, neighbours)
        except _CannotPin as refusal:
            return CpuPlan(mask, usable, why=f"nothing is pinned: {refusal.why}", reason=refusal.reason)
    else:
        workers, result = _from_number(int(wanted), len(addresses), mask, geometry, neighbours)
    plan = CpuPlan(mask, usable, workers, result, why=_pinned_sentence(workers, result), reason=reasons.PINNED)
    return _nothing_left(plan, wanted) if plan.pinned >= mask else plan


def _nothing_left(plan: CpuPlan, wanted: Setting) -> CpuPlan:
    """What becomes of a plan that would pin its whole mask: none for `auto`, an error for a CPU number."""
    why = (
        f"pinning {format_cpu_list(plan.pinned)} would take every CPU of the mask "
        f"({format_cpu_list(plan.mask)}); at least one has to stay for everything else"
    )
    if wanted == AUTO:
        return CpuPlan(plan.mask, plan.usable, why=f"nothing is pinned: {why}", reason=reasons.WOULD_PIN_ALL)
    raise CpuPlanError(
        f"step_thread_core {wanted}: {why}; use off, or give the container more CPUs", reason=reasons.WOULD_PIN_ALL
    )


def _from_number(
    number: int, worker_count: int, mask: frozenset[int], geometry: Geometry, neighbours: Neighbours
) -> tuple[tuple[StepCpus, ...], int]:
    """The workers and the result CPU for a CPU number.

    1. The number must be in the mask, and no neighbour may hold its core.
    2. The API server takes the last core of the mask that no neighbour holds.
    3. Workers take the number's core and the next above it, skipping the API server's and neighbours'.
    4. Too few such cores are an error with both numbers.
    """
    if number not in mask:
        raise CpuPlanError(
            f"step_thread_core {number}: CPU {number} is outside the mask ({format_cpu_list(mask)}); "
            "choose a CPU of the mask, or auto",
            reason=reasons.OUTSIDE_MASK,
        )
    own_core = geometry.core(number, mask)
    if has_taken(own_core, neighbours.cores):
        raise CpuPlanError(
            f"step_thread_core {number}: the core of CPU {number} ({format_cpu_list(own_core)}) is held by "
            f"{neighbours.holders(own_core)}; choose a CPU of another core, or auto",
            reason=reasons.CONFLICT,
        )
    free = [core for core in geometry.cores(mask) if not has_taken(core, neighbours.cores)]
    result_core = free[-1]
    if not worker_count:
        return (), result_core[0]
    candidates: list[Core] = []
    taken = set(result_core)
    for core in free[free.index(own_core) :]:
        if not has_taken(core, taken):
            candidates.append(core)
            taken.update(core)
    if len(candidates) < worker_count:
        raise _too_few_above(number, worker_count, candidates, result_core)
    workers = tuple(
        StepCpus(frozenset(core), f"core {format_cpu_list(core)}, number {count} from CPU {number} up")
        for count, core in enumerate(candidates[:worker_count], start=1)
    )
    return workers, result_core[0]


def _auto(
    addresses: Sequence[str | None],
    mask: frozenset[int],
    geometry: Geometry,
    neighbours: Neighbours,
) -> tuple[tuple[StepCpus, ...], int]:
    """The workers and the result CPU for `auto`; the numbers are the specification's steps."""
    # 1. Something to place.
    if not mask or not addresses:
        missing = "the mask has no CPU" if not mask else "the deployment has no worker"
        raise _CannotPin(reasons.NOTHING_TO_PLACE, missing)
    # 2. Pools.
    keys = [device_key(address) for address in addresses]
    places = [geometry.place(key, mask) for key in keys]
    # 3. Every pool in use holds two cores for each of its GPUs.
    for place in places:
        if not place.is_large_enough:
            raise _CannotPin(reasons.TOO_FEW_CORES, _too_few_sentence(place))
    # 4. The result CPU.
    result_core = _result_core(places[0], neighbours)
    taken = set(result_core)
    # 5. Workers.
    workers = []
    for index, (key, place) in enumerate(zip(keys, places, strict=True)):
        core = _worker_core(place, keys[:index].count(key), taken, neighbours)
        if core is None:
            raise _CannotPin(reasons.NO_CORE_LEFT, _no_core_sentence(index, keys, place, neighbours))
        taken.update(core)
        workers.append(StepCpus(frozenset(core), worker_sentence(core, key, place)))
    return tuple(workers), result_core[0]


def _result_core(place: Place, neighbours: Neighbours) -> Core:
    """The core at the GPU's rank from the top; beside neighbours, at its next free step."""
    ladder = range(len(place.cores) - 1 - place.rank, place.count - 1, -place.count)
    for position in ladder:
        if not has_taken(place.cores[position], neighbours.cores):
            return place.cores[position]
    raise _conflict("result threads", place, [place.cores[position] for position in ladder], neighbours)


def _worker_core(place: Place, earlier: int, taken: set[int], neighbours: Neighbours) -> Core | None:
    """The first core for a worker that nobody has taken; None where all are taken.

    Alone, the search starts `earlier` steps up (workers of this deployment on the same device) and goes
    on core by core. Beside neighbours, the steps that they hold do not count.
    """
    end = len(place.cores) - place.count
    ladder = range(place.rank, end, place.count)
    free = [position for position in ladder if not has_taken(place.cores[position], neighbours.cores)]
    if len(free) < len(ladder) and earlier >= len(free):
        raise _conflict("step threads", place, [place.cores[position] for position in ladder], neighbours)
    start = free[earlier] if earlier < len(free) else end
    for core in place.cores[start:end]:
        if not has_taken(core, taken) and not has_taken(core, neighbours.cores):
            return core
    return None


def _conflict(what: str, place: Place, cores: Sequence[Core], neighbours: Neighbours) -> _CannotPin:
    cpus = [cpu for core in cores for cpu in core]
    return _CannotPin(
        reasons.CONFLICT,
        f"every core of {place.name} that the {what} may take "
        f"({format_cpu_list(cpus)}) is held by {neighbours.holders(cpus)}",
    )


def worker_sentence(core: Core, key: str | None, place: Place) -> str:
    """Why `auto` gives a worker on the device `key` this core of its place."""
    where = f"core {format_cpu_list(core)} of {place.name}"
    if key is None:
        return f"{where} for a worker without a GPU"
    if place.name == WHOLE_MASK:
        return f"{where} for GPU {key}, which is none of this host's of that kind"
    return f"{where} for GPU {key}, GPU {place.rank + 1} of {place.count} there"


def _too_few_sentence(place: Place) -> str:
    there = f"the mask has {len(place.cores)}"
    if place.name == WHOLE_MASK:
        return f"a worker and the result threads need a core each, {there}; give the container more CPUs"
    who = f"{place.count} GPUs share {place.name} and need" if place.count > 1 else f"one GPU of {place.name} needs"
    return f"{who} {2 * place.count} cores there, {there}"


def _no_core_sentence(index: int, keys: Sequence[str | None], place: Place, neighbours: Neighbours) -> str:
    held_count = sum(has_taken(core, neighbours.cores) for core in place.cores)
    held = f" ({held_count} of them held by other deployments)" if held_count else ""
    if place.name == WHOLE_MASK:
        return (
            f"no core is left for worker {index}: {counted(len(keys), 'worker')} and the result threads need a "
            f"core each, the mask has {len(place.cores)}{held}; give the container more CPUs, or run fewer workers"
        )
    shared = f" for {place.count} GPUs" if place.count > 1 else ""
    return (
        f"no core is left in {place.name} for worker {index}, number {keys[: index + 1].count(keys[index])} on "
        f"GPU {keys[index]}: the mask has {len(place.cores)} cores there{shared}{held}; the last {place.count} are "
        "kept for result threads; give the container more CPUs there, or run fewer workers on this GPU"
    )


def _too_few_above(number: int, worker_count: int, free: Sequence[Core], result_core: Core) -> CpuPlanError:
    workers = "1 worker needs a core" if worker_count == 1 else f"{worker_count} workers need a core each"
    cpus = format_cpu_list(cpu for core in free for cpu in core)
    cores = (
        f"{len(free)} {'is' if len(free) == 1 else 'are'} free from CPU {number} up ({cpus})"
        if free
        else f"none is free from CPU {number} up"
    )
    return CpuPlanError(
        f"step_thread_core {number}: {workers}, {cores}: the last free core ({format_cpu_list(result_core)}) is kept "
        "for the result threads; choose a lower CPU, or auto",
        reason=reasons.TOO_FEW_CORES_ABOVE,
    )


def _pinned_sentence(workers: Sequence[StepCpus], result: int) -> str:
    steps = "; ".join(format_cpu_list(worker.cpus) for worker in workers)
    threads = f"step threads on {steps}, " if workers else ""
    return f"{threads}result threads on CPU {result}"
