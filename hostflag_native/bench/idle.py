"""What an idle wait costs the round that ends it: its naps are longer."""

import time
from typing import Final

from hostflag_native.bench.contestants import NAP_NS
from hostflag_native.bench.mechanism import STEP_SECONDS
from hostflag_native.core import HostFlagCore
from hostflag_native.exchange import Cpus, ExchangeFailedError, PinnedThread
from hostflag_native.probe import Distribution
from hostflag_native.timer_slack import set_timer_slack

IDLE_SECONDS: Final = 0.1
"""How long no round has to come for naps to get longer."""

_REST_NS: Final = int(IDLE_SECONDS * 1.5e9)
"""How long the stream rests before a round: the wait is idle by then, and not about to ask again."""

_PHASES: Final = 13
"""Rests differ by so many fractions of a nap, so that rounds do not all come at one point of it."""


def idle_core(core: HostFlagCore, lib_path: str) -> HostFlagCore:
    """A proxy's object on the same page, which spins never and naps as the benchmark's contestants do."""
    return HostFlagCore(lib_path, spin_us=0, nap_us=NAP_NS / 1000, page=core.page)


def measure_idle_wakes(core: HostFlagCore, lib_path: str, cpus: Cpus, rounds: int) -> Distribution:
    """How long after it was gathered an idle proxy, in Python, sees a round, in ns.

    Raises:
        ExchangeFailedError: a round was not seen.
    """
    core.reset()
    idle = idle_core(core, lib_path)
    nap_ns = int(idle.longest_idle_nap_us * 1000)

    def see_rounds() -> list[int]:
        set_timer_slack()
        seen_ns = []
        for value in range(1, rounds + 1):
            if not idle.wait_gathered(value, STEP_SECONDS):
                raise ExchangeFailedError(f"an idle proxy did not see round {value} within {STEP_SECONDS:g} s")
            seen_ns.append(time.monotonic_ns())
        return seen_ns

    proxy = PinnedThread(cpus[1], see_rounds)
    gathered_ns = []
    for value in range(1, rounds + 1):
        time.sleep((_REST_NS + nap_ns * (value * 5 % _PHASES) / _PHASES) / 1e9)
        gathered_ns.append(time.monotonic_ns())
        core.lib.dsv41_hf_store(core.gathered_host, value)
    seen_ns = proxy.result(2 * STEP_SECONDS)
    idle.close()
    return Distribution.of([seen - gathered for seen, gathered in zip(seen_ns, gathered_ns, strict=True)])
