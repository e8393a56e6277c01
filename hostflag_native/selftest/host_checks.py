"""The host part: the library, the page, one process's threads. Needs no device and about half a second."""

import ctypes
import random
import time
from typing import Final

from hostflag_native.core import HostFlagCore
from hostflag_native.layout import FAR_AHEAD, PAGE_ALIGNMENT_BYTES, PAGE_BYTES, is_geq
from hostflag_native.selftest.rounds import (
    JUST_BELOW_WRAP,
    STEP_NS,
    Injection,
    StreamStandIn,
    play_rounds,
    publish_bytes,
    reply_of,
    set_words,
)
from hostflag_native.selftest.verdict import CheckFailedError, Checklist, Figures

PART: Final = "host"

REPLY_BYTES: Final = 256
FAIL_STATUS: Final = -77

ROUNDS: Final = 200
"""Rounds of the order and wrap checks: some ms."""

RACES: Final = 200
"""Races of publish against the watchdog: at 0.5 ms each 0.1 s."""

RACE_DEADLINE_MS: Final = 0.5
DEADLINE_MS: Final = 20.0
DEADLINE_ROUNDS: Final = 5

FAILED_REPLY: Final = FAIL_STATUS.to_bytes(4, "little", signed=True) + bytes(REPLY_BYTES - 4)


def run_host_checks(checklist: Checklist, lib_path: str, injection: Injection) -> bool:
    """Makes the checks of one process; False if the library does not load: then there is nothing more to check."""
    opened: list[HostFlagCore] = []
    if not checklist.run(PART, "library", "host-library", lambda: _check_library(lib_path, opened)):
        return False
    core = opened[0]
    checklist.run(PART, "page", "host-page", lambda: _check_page(core))
    checklist.run(PART, "order", "host-order", lambda: play_rounds(core, 1, ROUNDS, REPLY_BYTES, injection))
    checklist.run(PART, "wrap", "host-wrap", lambda: play_rounds(core, JUST_BELOW_WRAP, ROUNDS, REPLY_BYTES))
    checklist.run(PART, "one-winner", "host-winner", lambda: _check_one_winner(core))
    checklist.run(PART, "deadline", "host-deadline", lambda: _check_deadline(core))
    checklist.run(PART, "fail-all", "host-fail-all", lambda: _check_fail_all(core))
    checklist.run(PART, "fail-ahead", "host-fail-ahead", lambda: _check_fail_ahead(core))
    core.close()
    return True


def _check_library(lib_path: str, opened: list[HostFlagCore]) -> Figures:
    core = HostFlagCore(lib_path, spin_us=50, nap_us=20)
    opened.append(core)
    return {"origin": core.lib_origin, "version": core.lib.dsv41_hf_version()}


def _check_page(core: HostFlagCore) -> Figures:
    if core.page % PAGE_ALIGNMENT_BYTES != 0:
        raise CheckFailedError(
            "host-page", f"the page at {core.page:#x} is not aligned to {PAGE_ALIGNMENT_BYTES} bytes"
        )
    if ctypes.string_at(core.page, PAGE_BYTES) != bytes(PAGE_BYTES):
        raise CheckFailedError("host-page", "a new page is not all zeros")
    return {"mlock": core.describe()["mlock"]}


def _check_one_winner(core: HostFlagCore) -> Figures:
    """Publishes each round around the watchdog's deadline: the reply or a failed one arrives, never a mixture."""
    rng = random.Random(1)  # noqa: S311  a schedule, not a secret
    stream = StreamStandIn(core, REPLY_BYTES)
    set_words(core, JUST_BELOW_WRAP - 1)
    core.attach(REPLY_BYTES, FAIL_STATUS, RACE_DEADLINE_MS, poll_us=50)
    published = 0
    try:
        for round_number in range(JUST_BELOW_WRAP, JUST_BELOW_WRAP + RACES):
            stream.gather(round_number)
            stream.is_released(round_number, int(rng.uniform(0.3, 0.7) * 1e6))
            has_won = publish_bytes(core, round_number, reply_of(round_number, REPLY_BYTES))
            if not stream.is_released(round_number, STEP_NS):
                raise CheckFailedError("host-winner", f"round {round_number % 2**32} stayed parked")
            expected = reply_of(round_number, REPLY_BYTES) if has_won else FAILED_REPLY
            if stream.take_reply(round_number) != expected:
                raise CheckFailedError("host-winner", f"round {round_number % 2**32} has two writers or none")
            published += has_won
        fires = core.watchdog_stats()["fires"]
    finally:
        core.stop_watchdog()
    if published + fires != RACES:
        raise CheckFailedError("host-winner", f"{published} published and {fires} failed rounds, expected {RACES}")
    return {"published": published, "failed": fires}


def _check_deadline(core: HostFlagCore) -> Figures:
    """Lets rounds run into the deadline: never early, and how late."""
    stream = StreamStandIn(core, REPLY_BYTES)
    set_words(core, JUST_BELOW_WRAP - 1)
    core.attach(REPLY_BYTES, FAIL_STATUS, DEADLINE_MS)
    waited_ms: list[float] = []
    try:
        for round_number in range(JUST_BELOW_WRAP, JUST_BELOW_WRAP + DEADLINE_ROUNDS):
            before_ns = time.monotonic_ns()
            stream.gather(round_number)
            if not stream.is_released(round_number, STEP_NS):
                raise CheckFailedError("host-deadline", f"the watchdog did not fail a round within {STEP_NS / 1e9:g} s")
            waited_ms.append((time.monotonic_ns() - before_ns) / 1e6)
            if stream.take_reply(round_number) != FAILED_REPLY:
                raise CheckFailedError("host-deadline", "the watchdog released a round without a failed reply")
        late_ms = core.watchdog_stats()["max_late_ms"]
    finally:
        core.stop_watchdog()
    if min(waited_ms) < DEADLINE_MS:
        raise CheckFailedError(
            "host-early", f"the watchdog failed a round after {min(waited_ms):.3f} ms of {DEADLINE_MS}"
        )
    return {"deadlineMs": DEADLINE_MS, "maxLateMs": round(late_ms, 3), "maxWaitMs": round(max(waited_ms), 3)}


def _check_fail_all(core: HostFlagCore) -> None:
    set_words(core, JUST_BELOW_WRAP - 1)
    core.configure_reply(REPLY_BYTES, FAIL_STATUS)
    stream = StreamStandIn(core, REPLY_BYTES)
    stream.gather(JUST_BELOW_WRAP)
    is_first, is_second = core.fail_all(JUST_BELOW_WRAP), core.fail_all(JUST_BELOW_WRAP)
    if (is_first, is_second) != (True, False):
        raise CheckFailedError("host-fail-all", f"two fail_all of a round gave {is_first} and {is_second}")
    if not stream.is_released(JUST_BELOW_WRAP, 0) or stream.take_reply(JUST_BELOW_WRAP) != FAILED_REPLY:
        raise CheckFailedError("host-fail-all", "fail_all did not release the round with a failed reply")


def _check_fail_ahead(core: HostFlagCore) -> None:
    """Every pending and later round is failed, a second call moves nothing, a late publish decides nothing."""
    set_words(core, JUST_BELOW_WRAP - 1)
    core.configure_reply(REPLY_BYTES, FAIL_STATUS)
    stream = StreamStandIn(core, REPLY_BYTES)
    stream.gather(JUST_BELOW_WRAP)
    is_first, is_second = core.fail_ahead(), core.fail_ahead()
    _, released, claimed = core.values()
    if (is_first, is_second) != (True, False) or released != claimed:
        raise CheckFailedError("host-fail-ahead", f"two fail_ahead gave {is_first} and {is_second}")
    for round_number in range(JUST_BELOW_WRAP, JUST_BELOW_WRAP + ROUNDS):
        stream.gather(round_number)
        if not stream.is_released(round_number, 0) or stream.take_reply(round_number) != FAILED_REPLY:
            raise CheckFailedError("host-fail-ahead", f"round {round_number % 2**32} was not failed ahead")
        if publish_bytes(core, round_number, bytes(REPLY_BYTES)):
            raise CheckFailedError("host-fail-ahead", f"a late publish decided round {round_number % 2**32}")
    if not is_geq(released, JUST_BELOW_WRAP + FAR_AHEAD):
        raise CheckFailedError("host-fail-ahead", f"released is {released}, less than 2^30 ahead")
