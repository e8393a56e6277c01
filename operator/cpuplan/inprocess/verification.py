"""The plan against where threads may really run: applied, or not, and which thread is where."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from ..host.threads import ThreadMask
from ..model.cpulist import format_cpu_list
from ..model.podplan import ContainerPlan


class Place(StrEnum):
    """Where a thread may run, in the words of the plan."""

    STEP = "step"
    RESULT = "result"
    POOL = "pool"
    FLOATING = "floating"


@dataclass(frozen=True, slots=True)
class PlacedThread:
    """One thread of a process, and the part of the plan that its CPUs are.

    Attributes:
        worker: whose step threads' CPUs it has, None for other places.
    """

    process_id: int
    thread: ThreadMask
    place: Place
    worker: int | None


@dataclass(frozen=True, slots=True)
class Verification:
    """Every thread with its place, and one sentence for each part of the plan that nobody applies."""

    threads: tuple[PlacedThread, ...]
    missing: tuple[str, ...]
    outside: tuple[str, ...]

    @property
    def is_applied(self) -> bool:
        """Whether every pinned CPU of the plan has its threads, and the plan fits the cpuset."""
        return not self.missing and not self.outside


def verify_threads(plan: ContainerPlan, processes: Iterable[tuple[int, tuple[ThreadMask, ...]]]) -> Verification:
    """Compares the plan with the masks of the processes' threads.

    1. A thread whose CPUs all belong to one worker's step CPUs is a step thread; on the result CPU alone, a
       result thread; off every pinned CPU, a pool thread; all others float over pinned CPUs.
    2. A worker with step CPUs but no step thread is missing; so is a result CPU without a result thread.
    3. A process of which any thread may run on CPUs that are neither in the plan's mask nor among those withheld from
       it was given another cpuset since: a thread that nobody pinned runs on the whole cpuset.
    """
    known = plan.mask | plan.withheld_cpus
    placed = []
    outside = []
    for process_id, threads in processes:
        placed += [_place(plan, process_id, thread) for thread in threads]
        strays = frozenset(cpu for thread in threads for cpu in thread.allowed) - known
        if strays:
            outside.append(
                f"process {process_id} may run on CPUs {format_cpu_list(strays)}, which are outside the plan's mask "
                f"({_known_sentence(plan)}): its cpuset has changed since"
            )
    return Verification(tuple(placed), tuple(_missing(plan, placed)), tuple(outside))


def _known_sentence(plan: ContainerPlan) -> str:
    withheld = ", ".join(map(str, plan.withheld))
    return f"{format_cpu_list(plan.mask)}; withheld {withheld}" if withheld else format_cpu_list(plan.mask)


def _place(plan: ContainerPlan, process_id: int, thread: ThreadMask) -> PlacedThread:
    for number, worker in enumerate(plan.workers):
        if worker.cpus and thread.allowed <= worker.cpus:
            return PlacedThread(process_id, thread, Place.STEP, number)
    if plan.result is not None and thread.allowed == {plan.result}:
        return PlacedThread(process_id, thread, Place.RESULT, None)
    place = Place.FLOATING if thread.allowed & plan.pinned else Place.POOL
    return PlacedThread(process_id, thread, place, None)


def _missing(plan: ContainerPlan, placed: list[PlacedThread]) -> list[str]:
    have = {found.worker for found in placed if found.place is Place.STEP}
    missing = [
        f"no thread is pinned to CPUs {format_cpu_list(worker.cpus)}, the step threads of worker {number}"
        for number, worker in enumerate(plan.workers)
        if worker.cpus and number not in have
    ]
    if plan.result is not None and not any(found.place is Place.RESULT for found in placed):
        missing.append(f"no thread is pinned to CPU {plan.result}, the result threads")
    return missing
