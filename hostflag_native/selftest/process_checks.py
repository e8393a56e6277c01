"""The host part with a second process: a shared page, a proxy that is killed, and the latency of both ways."""

import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from hostflag_native.core import HostFlagCore
from hostflag_native.exchange import (
    Exchange,
    ExchangeFailedError,
    Kind,
    between_processes,
    between_threads,
    suited_to,
    two_allowed_cpus,
)
from hostflag_native.probe import Distribution
from hostflag_native.selftest.host_checks import FAIL_STATUS, FAILED_REPLY, PART, REPLY_BYTES
from hostflag_native.selftest.peer import PeerRole, PeerTask, peer_process
from hostflag_native.selftest.rounds import JUST_BELOW_WRAP, STEP_NS, StreamStandIn, reply_of, set_words
from hostflag_native.selftest.verdict import CheckFailedError, Checklist, Figures
from hostflag_native.shared_page import SharedPage

SHARED_ROUNDS: Final = 100

PEER_START_NS: Final = 10_000_000_000
"""How long a peer may take to start and answer its first round, in ns: a new interpreter under a small quota."""

KILL_DEADLINE_MS: Final = 10_000.0
"""The watchdog's deadline where the pidfd must be what notices: far beyond it, in ms."""

WATCHDOG_DEADLINE_MS: Final = 100.0
"""Its deadline where it is the watchdog that notices, in ms."""

LATENCY_ROUNDS: Final = 4000
"""Some ms of spinning on two CPUs: within one period of a quota of one CPU."""

LATENCY_NS: Final = 300_000_000
"""Longest time of one of the four measurements, in ns: on busy CPUs both sides seldom run at once."""

PageCheck = Callable[[HostFlagCore, SharedPage, str], Figures | None]
"""A check on a page that two processes map; the last argument is the library."""


def run_process_checks(checklist: Checklist, lib_path: str) -> None:
    """Makes the checks that need a second process, each on a page of its own."""
    killed = [
        (f"killed-{role}", "host-killed", partial(_check_killed, role=role))
        for role in (PeerRole.DIE_BEFORE_CLAIM, PeerRole.DIE_AFTER_CLAIM, PeerRole.DIE_AFTER_RELEASE)
    ]
    checks: list[tuple[str, str, PageCheck]] = [
        ("shared-page", "host-shared", _check_shared),
        *killed,
        ("killed-unwatched", "host-killed", _check_killed_unwatched),
        ("latency", "host-latency", _check_latency),
    ]
    for name, fault, check in checks:
        checklist.run(PART, name, fault, partial(_on_shared_page, lib_path, check))


def _on_shared_page(lib_path: str, check: PageCheck) -> Figures | None:
    page = SharedPage()
    core = HostFlagCore(lib_path, spin_us=50, nap_us=20, page=page.address)
    try:
        return check(core, page, lib_path)
    finally:
        core.close()
        page.close()


def _check_shared(core: HostFlagCore, page: SharedPage, lib_path: str) -> None:
    set_words(core, JUST_BELOW_WRAP - 1)
    stream = StreamStandIn(core, REPLY_BYTES)
    with peer_process(page, PeerTask(PeerRole.SERVE, JUST_BELOW_WRAP, SHARED_ROUNDS, REPLY_BYTES, lib_path)):
        for round_number in range(JUST_BELOW_WRAP, JUST_BELOW_WRAP + SHARED_ROUNDS):
            stream.gather(round_number)
            if not stream.is_released(round_number, PEER_START_NS):
                core.release(round_number)
                raise CheckFailedError("host-shared", f"another process did not answer round {round_number % 2**32}")
            if stream.take_reply(round_number) != reply_of(round_number, REPLY_BYTES):
                raise CheckFailedError(
                    "host-shared", f"another process's reply to round {round_number % 2**32} is torn"
                )


def _check_killed(core: HostFlagCore, page: SharedPage, lib_path: str, role: PeerRole) -> None:
    """A watched proxy is killed at one point: the round it was in and the next are released at once."""
    set_words(core, JUST_BELOW_WRAP - 1)
    core.attach(REPLY_BYTES, FAIL_STATUS, KILL_DEADLINE_MS)
    stream = StreamStandIn(core, REPLY_BYTES)
    with peer_process(page, PeerTask(role, JUST_BELOW_WRAP, 1, REPLY_BYTES, lib_path)) as peer:
        core.watch_proxy(peer.pid)
        replies = []
        for round_number in (JUST_BELOW_WRAP, JUST_BELOW_WRAP + 1):
            stream.gather(round_number)
            if not stream.is_released(round_number, PEER_START_NS):
                core.release(round_number)
                raise CheckFailedError("host-killed", f"a proxy killed at {role} left the stream parked")
            replies.append(stream.take_reply(round_number))
        _expect_killed(peer)
    # A stream that takes over 10 ms to copy the last reply out gets a failed one over it: the proxy is dead.
    answers = [FAILED_REPLY, reply_of(JUST_BELOW_WRAP, REPLY_BYTES)][: 1 + (role is PeerRole.DIE_AFTER_RELEASE)]
    if replies[0] not in answers or replies[1] != FAILED_REPLY:
        raise CheckFailedError("host-killed", f"a proxy killed at {role} left a wrong reply")


def _check_killed_unwatched(core: HostFlagCore, page: SharedPage, lib_path: str) -> Figures:
    """Nobody watches the proxy's process: the watchdog fails the round that it had not claimed when it died."""
    set_words(core, JUST_BELOW_WRAP - 1)
    stream = StreamStandIn(core, REPLY_BYTES)
    served, unserved = JUST_BELOW_WRAP, JUST_BELOW_WRAP + 1
    with peer_process(page, PeerTask(PeerRole.DIE_BEFORE_CLAIM, served, 2, REPLY_BYTES, lib_path)) as peer:
        stream.gather(served)
        if not stream.is_released(served, PEER_START_NS):
            core.release(served)
            raise CheckFailedError("host-killed", "another process did not answer its first round")
        stream.take_reply(served)
        core.attach(REPLY_BYTES, FAIL_STATUS, WATCHDOG_DEADLINE_MS)
        started_ns = time.monotonic_ns()
        stream.gather(unserved)
        _expect_killed(peer)
        dead_after_ms = (time.monotonic_ns() - started_ns) / 1e6
        if not stream.is_released(unserved, STEP_NS):
            raise CheckFailedError("host-killed", "a killed proxy that nobody watches left the stream parked")
        waited_ms = (time.monotonic_ns() - started_ns) / 1e6
        if stream.take_reply(unserved) != FAILED_REPLY:
            raise CheckFailedError("host-killed", "the watchdog released a dead proxy's round without a failed reply")
    return {
        "deadlineMs": WATCHDOG_DEADLINE_MS,
        "deadAfterMs": round(dead_after_ms, 3),
        "releasedAfterMs": round(waited_ms, 3),
    }


def _expect_killed(peer: "subprocess.Popen[bytes]") -> None:
    """The peer must have got as far as killing itself: a proxy that crashed before would make the check say nothing."""
    if peer.wait(STEP_NS / 1e9) != -signal.SIGKILL:
        raise CheckFailedError("host-peer", f"the second process ended with {peer.returncode} before its point")


def _check_latency(core: HostFlagCore, page: SharedPage, lib_path: str) -> Figures:
    """Round trips of words alone, beside the bare ping-pong of the same two CPUs; measured, not judged."""
    cpus = two_allowed_cpus()
    bare = Exchange(
        Kind.BARE, LATENCY_ROUNDS, JUST_BELOW_WRAP, limit_ns=PEER_START_NS, budget_ns=LATENCY_NS, lib_path=lib_path
    )
    handoff = replace(bare, kind=Kind.HANDOFF)
    figures: Figures = {"cpus": list(cpus)}
    for name, exchange in (("bare", bare), ("handoff", handoff)):
        suited = suited_to(exchange, cpus)
        figures[name] = {
            "threads": _figures_of(partial(between_threads, suited, core.lib, page.address, cpus)),
            "processes": _figures_of(partial(between_processes, suited, core.lib, page, cpus)),
        }
    return figures


def _figures_of(measure: Callable[[], list[int]]) -> Figures:
    """The distribution, or why there is none: CPUs too busy to measure on are no fault of the hand-off."""
    try:
        return Distribution.of(measure()).as_json()
    except ExchangeFailedError as error:
        return {"notMeasured": str(error)}
