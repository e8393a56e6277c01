"""What the hand-off costs beside its round trips: a publish, the watchdog's lateness, the CPU that waiting burns."""

import ctypes
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from hostflag_native.bench.contestants import NAP_NS, REPLY_4K
from hostflag_native.bench.idle import IDLE_SECONDS, idle_core
from hostflag_native.core import HostFlagCore
from hostflag_native.exchange import Cpus, ExchangeFailedError, PinnedThread
from hostflag_native.layout import OFF_CLAIMED, OFF_RELEASED
from hostflag_native.probe import Distribution, ProbeCalls, load_probe
from hostflag_native.timer_slack import set_timer_slack

PUBLISH_SLICES: Final = 20
PUBLISH_BATCH: Final = 64
"""Publishes between two looks at the clock: some us, so that the clock does not count."""

DEADLINE_NS: Final = 2_000_000
POLL_NS: Final = DEADLINE_NS // 10
"""The longest that attach allows for this deadline."""

PHASE_STEP_NS: Final = POLL_NS * 5 // 13
"""How much longer each rest between rounds is than the one before, modulo the poll, in ns: else all rounds would be
gathered at one phase of the watchdog's polling."""

FAIL_STATUS: Final = -1
REPLY_BYTES: Final = 64

SPIN_TAIL_NS: Final = 150_000
"""The stream's stand-in naps until so long before the deadline and spins from there, in ns: a nap's end is too coarse
to see whether the watchdog is early."""

WAITING_SLICES: Final = 10

STUCK_NS: Final = 5_000_000_000


@dataclass(frozen=True, slots=True)
class PublishCost:
    """One publish of 4 KiB, and its limit: memcpy of as much and one store. Each figure is the mean of a batch."""

    publish: Distribution
    copy: Distribution

    @property
    def p50_over_limit(self) -> float:
        """The usual publish over the usual limit."""
        return self.publish.p50_ns / self.copy.p50_ns


@dataclass(frozen=True, slots=True)
class Lateness:
    """How long after gathering plus deadline a round that nobody answered was failed.

    The definition of the watchdog's own lateness starts when it first saw the round: own_max_ns is that. What the
    stream sees, and what since_gathered tells, is up to one poll more. of_naps is the limit: how late a thread that
    only naps for a poll at a time sees that as much time is over, on the same CPU, in turns with the rounds.
    """

    since_gathered: Distribution
    of_naps: Distribution
    own_max_ns: float
    deadline_ns: int
    poll_ns: int


class Waiting(StrEnum):
    """How a thread waits."""

    SPIN = "spin"
    YIELD = "yield"
    NAP = "nap 50 us"
    IDLE_NAP = "nap 50 us, no round for 100 ms"
    BARE_NAP = "bare naps of 50 us (the limit)"
    EVENT = "threading.Event"


@dataclass(frozen=True, slots=True)
class WaitingCost:
    """CPU time over wall time of a thread that waits for a round which does not come."""

    way: Waiting
    cpu_share: float


def measure_publish(core: HostFlagCore, cpu: int, rounds: int) -> PublishCost:
    """Alternates slices of publishing and of the limit on one CPU."""
    batches = max(1, rounds // PUBLISH_BATCH // PUBLISH_SLICES)

    def work() -> PublishCost:
        probe, calls = load_probe(), ctypes.byref(ProbeCalls.of(core.lib))
        source = ctypes.create_string_buffer(REPLY_4K)
        costs = (ctypes.c_double * batches)()
        published: list[float] = []
        copied: list[float] = []
        for _ in range(PUBLISH_SLICES + 1):
            for offset in (OFF_CLAIMED, OFF_RELEASED):
                core.lib.dsv41_hf_set(core.page + offset, 0)
            probe.hf_probe_publish_cost(calls, core.page, 1, batches, PUBLISH_BATCH, source, REPLY_4K, costs)
            published.extend(costs)
            probe.hf_probe_copy_cost(core.page, batches, PUBLISH_BATCH, source, REPLY_4K, costs)
            copied.extend(costs)
        return PublishCost(Distribution.of(published[batches:]), Distribution.of(copied[batches:]))

    return PinnedThread(cpu, work).result()


def measure_lateness(core: HostFlagCore, cpus: Cpus, rounds: int) -> Lateness:
    """Lets rounds run into the deadline, one after the other: the stream on the first CPU, the watchdog on the second.

    Raises:
        ExchangeFailedError: the watchdog did not fail a round.
    """
    core.reset()
    attach = partial(core.attach, REPLY_BYTES, FAIL_STATUS, DEADLINE_NS / 1e6, POLL_NS / 1000)
    PinnedThread(cpus[1], attach).result()  # the watchdog inherits its CPU
    try:
        late, napped = PinnedThread(cpus[0], lambda: _late_rounds(core, cpus, rounds)).result()
        own_max_ns = core.watchdog_stats()["max_late_ms"] * 1e6
    finally:
        core.stop_watchdog()
    return Lateness(Distribution.of(late), Distribution.of(napped), own_max_ns, DEADLINE_NS, POLL_NS)


def _late_rounds(core: HostFlagCore, cpus: Cpus, rounds: int) -> tuple[list[int], list[int]]:
    set_timer_slack()
    wait, nap = core.lib.dsv41_hf_wait_geq, load_probe().hf_probe_naps
    late: list[int] = []
    napped: list[int] = []
    for value in range(1, rounds + 1):
        gathered_ns = time.monotonic_ns()
        core.lib.dsv41_hf_store(core.gathered_host, value)
        wait(core.released_host, value, DEADLINE_NS - SPIN_TAIL_NS, 0, NAP_NS)
        if wait(core.released_host, value, STUCK_NS, STUCK_NS, 0) != 0:
            raise ExchangeFailedError(f"the watchdog did not fail a round within {STUCK_NS / 1e9:g} s")
        late.append(time.monotonic_ns() - gathered_ns - DEADLINE_NS)
        core.consumed(value)
        os.sched_setaffinity(0, {cpus[1]})
        asked_ns = DEADLINE_NS + value * PHASE_STEP_NS % POLL_NS
        start_ns = time.monotonic_ns()
        nap(asked_ns, POLL_NS)
        napped.append(time.monotonic_ns() - start_ns - asked_ns)
        os.sched_setaffinity(0, {cpus[0]})
    return late, napped


def measure_waiting(core: HostFlagCore, lib_path: str, cpu: int, seconds: float) -> list[WaitingCost]:
    """Lets a thread wait in each way for so many seconds, in alternating slices."""
    core.reset()
    ns = int(seconds * 1e9) // WAITING_SLICES
    idle = idle_core(core, lib_path)
    idle.wait_gathered(1, IDLE_SECONDS)

    def handoff(spin_ns: int, nap_ns: int) -> Callable[[], object]:
        return lambda: core.lib.dsv41_hf_wait_geq(core.gathered_host, 1, ns, spin_ns, nap_ns)

    ways = {
        Waiting.SPIN: handoff(ns, 0),
        Waiting.YIELD: handoff(0, 0),
        Waiting.NAP: handoff(0, NAP_NS),
        Waiting.IDLE_NAP: lambda: idle.wait_gathered(1, ns / 1e9),
        Waiting.BARE_NAP: lambda: load_probe().hf_probe_naps(ns, NAP_NS),
        Waiting.EVENT: lambda: threading.Event().wait(ns / 1e9),
    }
    slices = [
        (way, *PinnedThread(cpu, partial(_cpu_and_wall_ns, wait)).result())
        for _ in range(WAITING_SLICES)
        for way, wait in ways.items()
    ]
    idle.close()
    return [
        WaitingCost(way, sum(s[1] for s in slices if s[0] is way) / sum(s[2] for s in slices if s[0] is way))
        for way in ways
    ]


def _cpu_and_wall_ns(wait: Callable[[], object]) -> tuple[int, int]:
    set_timer_slack()
    start_ns, start_cpu_ns = time.monotonic_ns(), time.thread_time_ns()
    wait()
    return time.thread_time_ns() - start_cpu_ns, time.monotonic_ns() - start_ns
