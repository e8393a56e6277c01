"""Putting threads on the CPUs of the plan, and keeping them there.

Only threads are pinned, never the process, and late: children and libraries inherit the affinity of the
thread that starts them, so a pool that a pinned thread creates would share its core. What the kernel says
afterwards is what counts: it drops CPUs that the cpuset forbids, and a rewritten cpuset wipes pins silently.

Source: sched_setaffinity(2), cpuset(7).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from ..host.forklock import fork_safe_lock
from ..host.threads import has_thread, read_allowed_cpus, read_thread_start
from ..model.cpulist import format_cpu_list
from ..model.plan import CpuPlan
from .current import plan as current_plan

NO_CPUS: frozenset[int] = frozenset()

_EVERY_CPU = frozenset(range(8192))
"""Asks for all CPUs that a kernel is built for (CONFIG_NR_CPUS): it keeps those that the cpuset allows."""

_lock = fork_safe_lock()
"""One for all pins: each holds it for a few system calls, and a forked child finds it free."""


class PinState(StrEnum):
    """What became of one thread's pin."""

    APPLIED = "applied"
    PARTIAL = "partial"
    REFUSED = "refused"
    WIPED = "wiped"
    ENDED = "ended"
    UNPLANNED = "unplanned"


@dataclass(frozen=True, slots=True)
class ThreadPin:
    """One thread: the CPUs that were asked for, those it may run on now, and the sentence for people."""

    thread_id: int
    wanted: frozenset[int]
    actual: frozenset[int]
    state: PinState
    why: str


@dataclass(frozen=True, slots=True)
class Role:
    """Which CPUs of a plan are meant: a worker's, the result CPU, or what the pools float on."""

    name: str
    cpus_in: Callable[[CpuPlan, frozenset[int]], frozenset[int]]
    """From a plan and the CPUs that its pools may float on, empty where the plan pins nothing for the role."""


@dataclass(slots=True)
class _Thread:
    """A thread in our care: which one, where it was before, and what the kernel granted last.

    `started` tells it from a later thread of its id, None where that could not be read.
    """

    thread_id: int
    started: int | None
    before: frozenset[int]
    granted: frozenset[int]
    refusal: str = ""


class Pins:
    """The threads of one role, on the CPUs of the plan in force. Safe to call from several threads."""

    def __init__(self, role: Role, cpus: frozenset[int]) -> None:
        self._role = role
        self._cpus = cpus
        self._threads: dict[int, _Thread] = {}

    @property
    def role(self) -> Role:
        """Whose threads these are."""
        return self._role

    @property
    def cpus(self) -> frozenset[int]:
        """The CPUs that the threads are meant to have; empty: those they had before."""
        return self._cpus

    def add(self, thread_id: int | None = None) -> ThreadPin:
        """Pins one more thread of this process, the calling one by default; says what came of it."""
        wanted_id = threading.get_native_id() if thread_id is None else thread_id
        with _lock:
            before = _affinity(wanted_id)
            if before is None or not has_thread(wanted_id):
                return _ended(wanted_id, self._cpus)
            thread = self._threads.get(wanted_id)
            if thread is None or _has_ended(thread):
                thread = _Thread(wanted_id, read_thread_start(wanted_id), before, before)
                self._threads[wanted_id] = thread
            self._apply(thread)
            return self._look(thread)

    def check(self) -> tuple[ThreadPin, ...]:
        """Where every thread may run now; changes nothing."""
        with _lock:
            return tuple(self._look(thread) for thread in self._threads.values())

    def repair(self) -> tuple[ThreadPin, ...]:
        """Tries again for every thread that is not where it should be, and forgets ended ones."""
        with _lock:
            self._forget_ended()
            for thread in self._threads.values():
                if self._look(thread).state is not PinState.APPLIED:
                    self._apply(thread)
            return tuple(self._look(thread) for thread in self._threads.values())

    def move(self, cpus: frozenset[int]) -> tuple[ThreadPin, ...]:
        """Moves the threads to the CPUs of another plan; to none: back to where they were before."""
        with _lock:
            self._forget_ended()
            self._cpus = cpus
            for thread in self._threads.values():
                if cpus:
                    self._apply(thread)
                else:
                    _give_back(thread)
            return tuple(self._look(thread) for thread in self._threads.values())

    def undo(self) -> None:
        """Gives every thread back the CPUs it had before; a thread that somebody else has moved since is left."""
        with _lock:
            self._forget_ended()
            for thread in self._threads.values():
                _give_back(thread)
            self._threads.clear()

    def _forget_ended(self) -> None:
        for thread in list(self._threads.values()):
            if _has_ended(thread):
                del self._threads[thread.thread_id]

    def _apply(self, thread: _Thread) -> None:
        """Asks for the CPUs; a thread that is refused them does not stay on those of an earlier plan."""
        if not self._cpus:
            return
        thread.refusal = _set_affinity(thread.thread_id, self._cpus)
        if thread.refusal:
            _give_back(thread)
        else:
            thread.granted = _affinity(thread.thread_id) or NO_CPUS

    def _look(self, thread: _Thread) -> ThreadPin:
        """The state of one thread, from what the kernel says now."""
        actual = _affinity(thread.thread_id)
        if actual is None or _has_ended(thread):
            return _ended(thread.thread_id, self._cpus)
        wanted, allowed = format_cpu_list(self._cpus), format_cpu_list(actual)
        if not self._cpus:
            state, why = PinState.UNPLANNED, f"the plan pins no CPU for {self._role.name}; it may run on {allowed}"
        elif actual == self._cpus:
            state, why = PinState.APPLIED, f"on CPUs {allowed}"
        elif thread.refusal:
            state, why = PinState.REFUSED, f"CPUs {wanted} were refused ({thread.refusal}); it may run on {allowed}"
        elif actual == thread.granted:
            state, why = PinState.PARTIAL, f"of CPUs {wanted} the cpuset allows {allowed}"
        else:
            state, why = PinState.WIPED, f"was moved from CPUs {format_cpu_list(thread.granted)} to {allowed}"
        return ThreadPin(thread.thread_id, self._cpus, actual, state, why)


def step_threads(worker: int) -> Role:
    """The step threads of a worker, counted from 0 in the deployment's order."""

    def cpus_in(plan: CpuPlan, _pool_cpus: frozenset[int]) -> frozenset[int]:
        step = plan.workers[worker] if 0 <= worker < len(plan.workers) else None
        return NO_CPUS if step is None else step.cpus

    return Role(f"the step threads of worker {worker}", cpus_in)


def _result_cpu(plan: CpuPlan, _pool_cpus: frozenset[int]) -> frozenset[int]:
    return NO_CPUS if plan.result is None else frozenset({plan.result})


def _pool_cpus(plan: CpuPlan, pool_cpus: frozenset[int]) -> frozenset[int]:
    return pool_cpus if plan.pinned else NO_CPUS


RESULT_THREADS = Role("the result threads", _result_cpu)
POOL_THREADS = Role("the pools' threads", _pool_cpus)


def pin_step_threads(worker: int, thread_ids: Iterable[int] | None = None, *, plan: CpuPlan | None = None) -> Pins:
    """Pins step threads of a worker to its core: the given ones, by kernel id, or else the calling thread.

    Call it late, when libraries are loaded and pools have started. A plan that pins nothing changes nothing.

    Args:
        plan: None: this process's plan.

    Returns:
        The pins: `check` says where each thread is, `undo` gives the threads back what they had.
    """
    return _pin(step_threads(worker), thread_ids, plan)


def pin_result_threads(thread_ids: Iterable[int] | None = None, *, plan: CpuPlan | None = None) -> Pins:
    """Pins the API server's result threads to the result CPU; as pin_step_threads otherwise."""
    return _pin(RESULT_THREADS, thread_ids, plan)


def pin_pool_threads(thread_ids: Iterable[int] | None = None, *, plan: CpuPlan | None = None) -> Pins:
    """Keeps threads of pools off every pinned CPU; as pin_step_threads otherwise."""
    return _pin(POOL_THREADS, thread_ids, plan)


def _pin(role: Role, thread_ids: Iterable[int] | None, plan: CpuPlan | None) -> Pins:
    chosen = current_plan() if plan is None else plan
    pins = Pins(role, role.cpus_in(chosen, chosen.mask - chosen.pinned))
    for thread_id in (None,) if thread_ids is None else thread_ids:
        pins.add(thread_id)
    return pins


def _ended(thread_id: int, wanted: frozenset[int]) -> ThreadPin:
    return ThreadPin(thread_id, wanted, NO_CPUS, PinState.ENDED, f"thread {thread_id} is no thread of this process")


def _has_ended(thread: _Thread) -> bool:
    """Whether the thread is gone, or its id another's; never merely because nothing could be read."""
    started = read_thread_start(thread.thread_id)
    if started is None or thread.started is None:
        return not has_thread(thread.thread_id)
    return started != thread.started


def _give_back(thread: _Thread) -> None:
    """Gives a thread the CPUs it had before, where we were the last to move it."""
    if _affinity(thread.thread_id) != thread.granted or thread.granted == thread.before:
        return
    if _set_affinity(thread.thread_id, thread.before):
        # None of the CPUs it had is allowed any more: the kernel decides which are.
        _set_affinity(thread.thread_id, _EVERY_CPU)
    thread.granted = _affinity(thread.thread_id) or NO_CPUS


def _affinity(thread_id: int) -> frozenset[int] | None:
    try:
        return frozenset(os.sched_getaffinity(thread_id))
    except ProcessLookupError:
        return None
    except OSError:  # a seccomp filter; procfs tells the same
        return read_allowed_cpus(thread_id)


def _set_affinity(thread_id: int, cpus: frozenset[int]) -> str:
    """Asks the kernel; empty, or why it refused."""
    try:
        os.sched_setaffinity(thread_id, cpus)
    except OSError as error:
        return error.strerror or str(error)
    return ""
