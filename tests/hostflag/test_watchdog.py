"""The native watchdog: never early, one winner, no signals, prompt to stop."""

import ctypes
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hostflag_native import HostFlagCore
from tests.hostflag.stream import LIMIT_NS, StreamStandIn

FAILED = (-7).to_bytes(4, "little", signed=True) + bytes(12)


def _watchdog_threads() -> list[Path]:
    tasks = Path("/proc/self/task").iterdir()
    return [task for task in tasks if (task / "comm").read_text() == "hostflag-watch\n"]


def test_a_round_that_nobody_answers_is_failed_after_its_deadline_never_before(core: HostFlagCore, start: int) -> None:
    core.attach(16, -7, 20, poll_us=100)
    stream = StreamStandIn(core)
    before = time.monotonic_ns()
    assert stream.run_round((start + 1) % 2**32, 16) == FAILED
    assert time.monotonic_ns() - before >= 20_000_000
    stats = core.watchdog_stats()
    assert (stats["fires"], stats["last_failed_round"], stats["deadline_ms"]) == (1, (start + 1) % 2**32, 20)
    assert stats["max_late_ms"] >= 0


def test_every_round_has_its_own_deadline(core: HostFlagCore, start: int) -> None:
    """The time that a round took counts for that round only: no later one inherits it."""
    core.attach(16, -7, 20, poll_us=100)
    stream = StreamStandIn(core)
    for i in range(1, 4):
        before = time.monotonic_ns()
        stream.run_round((start + i) % 2**32, 16)
        assert time.monotonic_ns() - before >= 20_000_000
    assert core.watchdog_stats()["fires"] == 3


def test_answered_rounds_are_left_alone(core: HostFlagCore, start: int) -> None:
    core.attach(16, -7, 60_000, poll_us=50)
    for i in range(1, 200):
        StreamStandIn(core).gather(start + i)
        assert core.publish(start + i, np.zeros(4, dtype=np.int32))
    assert core.watchdog_stats()["fires"] == 0


def test_a_publish_after_the_watchdog_decides_nothing_and_writes_nothing(core: HostFlagCore, start: int) -> None:
    core.attach(16, -7, 1)
    StreamStandIn(core).gather(start + 1)
    assert StreamStandIn(core).is_released((start + 1) % 2**32, LIMIT_NS)
    assert core.publish(start + 1, np.full(4, 9, dtype=np.int32)) is False
    assert StreamStandIn(core).reply(16) == FAILED


def test_a_round_that_is_claimed_is_left_to_its_claimant(core: HostFlagCore, start: int) -> None:
    core.attach(16, -7, 1, poll_us=50)
    core.lib.dsv41_hf_claim(core.claimed_host, start + 1)
    StreamStandIn(core).gather(start + 1)
    assert not StreamStandIn(core).is_released((start + 1) % 2**32, 20_000_000)
    assert core.watchdog_stats()["fires"] == 0


def test_a_later_unclaimed_round_is_failed_even_if_a_dead_claimant_holds_the_one_before(
    core: HostFlagCore, start: int
) -> None:
    core.attach(16, -7, 1, poll_us=50)
    core.lib.dsv41_hf_claim(core.claimed_host, start + 1)
    StreamStandIn(core).gather(start + 2)
    assert StreamStandIn(core).is_released((start + 2) % 2**32, LIMIT_NS)
    assert core.watchdog_stats()["last_failed_round"] == (start + 2) % 2**32


def test_the_watchdog_thread_has_every_signal_blocked(core: HostFlagCore, start: int) -> None:
    core.attach(16, -7, 1)
    StreamStandIn(core).run_round((start + 1) % 2**32, 16)
    (task,) = _watchdog_threads()
    status = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
    blocked = int(status["SigBlk"], 16)
    blockable = set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}
    assert [number for number in blockable if not blocked >> (number - 1) & 1] == []


def test_stopping_ends_the_thread_within_a_poll(core: HostFlagCore) -> None:
    core.attach(16, -7, 60_000, poll_us=20_000)
    core.stop_watchdog()
    assert _watchdog_threads() == []
    assert core.watchdog_stats() == {"running": False}


def test_the_mirror_holds_the_raw_stats(core: HostFlagCore, start: int) -> None:
    mirror = (ctypes.c_uint64 * 3)(1, 2, 3)
    core.watchdog_mirror(ctypes.addressof(mirror))
    assert list(mirror) == [1, 2, 3]
    core.attach(16, -7, 5)
    StreamStandIn(core).run_round((start + 1) % 2**32, 16)
    core.watchdog_mirror(ctypes.addressof(mirror))
    assert list(mirror)[:2] == [1, (start + 1) % 2**32]


def test_stats_are_asked_for_while_another_thread_stops_the_watchdog(
    core: HostFlagCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop waits for whoever reads them: what they are read from is freed by it."""
    core.attach(16, -7, 60_000)
    read = core._short.dsv41_hf_watchdog_stats
    stopper = threading.Thread(target=core.stop_watchdog)
    was_freed_meanwhile = []

    def read_slowly(watchdog: int, dst: int) -> None:
        stopper.start()
        stopper.join(0.1)
        was_freed_meanwhile.append(not stopper.is_alive())
        read(watchdog, dst)

    monkeypatch.setattr(core, "_short", SimpleNamespace(dsv41_hf_watchdog_stats=read_slowly))
    assert core.watchdog_stats()["running"]
    stopper.join()
    assert was_freed_meanwhile == [False]
    assert core.watchdog_stats() == {"running": False}


def test_no_watchdog_has_stats_of_zeros(core: HostFlagCore) -> None:
    stats = (ctypes.c_uint64 * 3)(1, 2, 3)
    core.lib.dsv41_hf_watchdog_stats(None, ctypes.addressof(stats))
    assert list(stats) == [0, 0, 0]


def test_a_stop_never_waits_for_a_poll_without_end(core: HostFlagCore) -> None:
    core.attach(16, -7, float("inf"), poll_us=float("inf"))
    core.stop_watchdog()
    assert _watchdog_threads() == []


@pytest.mark.parametrize("missing", range(4))
def test_a_missing_address_gives_no_watchdog(core: HostFlagCore, missing: int) -> None:
    addresses = [core.gathered_host, core.released_host, core.claimed_host, core.reply_host]
    addresses[missing] = 0
    assert core.lib.dsv41_hf_watchdog_start(*addresses, 16, -7, 10**9, 10**6) is None


@pytest.mark.parametrize(("deadline_ns", "poll_ns"), [(0, 10**6), (-1, 10**6), (10**9, 0), (10**9, -1)])
def test_a_duration_that_is_not_positive_gives_no_watchdog(core: HostFlagCore, deadline_ns: int, poll_ns: int) -> None:
    addresses = [core.gathered_host, core.released_host, core.claimed_host, core.reply_host]
    assert core.lib.dsv41_hf_watchdog_start(*addresses, 16, -7, deadline_ns, poll_ns) is None


def test_a_deadline_longer_than_the_clock_counts_never_comes(core: HostFlagCore, start: int) -> None:
    core.attach(16, -7, float("inf"), poll_us=50)
    StreamStandIn(core).gather(start + 1)
    assert not StreamStandIn(core).is_released((start + 1) % 2**32, 5_000_000)


def test_it_needs_no_python(core: HostFlagCore, start: int) -> None:
    """With the GIL held for the whole wait, the parked stream is still released."""
    core.attach(16, -7, 5)
    holding_gil = ctypes.PyDLL(core.lib._name, handle=core.lib._handle)
    wait = holding_gil.dsv41_hf_wait_geq
    wait.argtypes = core.lib.dsv41_hf_wait_geq.argtypes
    StreamStandIn(core).gather(start + 1)
    assert wait(core.released_host, start + 1, LIMIT_NS, 0, 100_000) == 0
