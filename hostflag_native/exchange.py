"""Measures a hand-off, and the bare cache-line ping-pong that is its limit, between two CPUs.

Both sides run the C loops of csrc/probe.c, in two threads or in two processes that map one page.
"""

import ctypes
import json
import os
import subprocess
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

from hostflag_native.layout import _M32, OFF_CLAIMED, OFF_CONSUMED, OFF_GATHERED, OFF_RELEASED, REPLY_CAPACITY
from hostflag_native.probe import ProbeCalls, ProbeRounds, load_probe
from hostflag_native.process_command import program_command
from hostflag_native.shared_page import SharedPage

WARM_UP_SHARE: Final = 20
"""One in so many rounds is left out at the start: caches, page tables and the other side's start are in those."""

FEWEST_ROUNDS: Final = 20
"""Fewer than this say nothing."""

Cpus = tuple[int, int]

Result = TypeVar("Result")


class ExchangeFailedError(Exception):
    """A side gave up: the other did not answer in time."""


class Kind(StrEnum):
    """What is exchanged."""

    BARE = "bare"
    HANDOFF = "handoff"
    FUTEX = "futex"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One measurement.

    Attributes:
        count: rounds.
        reply_bytes: what publish copies; the stream copies it out again.
        spin_ns, nap_ns: how both sides wait (hand-off only).
        pause_ns: how long the stream rests before each round.
        limit_ns: the longest wait for one step.
        budget_ns: the stream's side ends so long after the first answer, with the rounds so far.
        lib_path: the hand-off library; empty: the one that an engine would load.
    """

    kind: Kind
    count: int
    first: int = 1
    reply_bytes: int = 0
    spin_ns: int = 1_000_000_000
    nap_ns: int = 0
    pause_ns: int = 0
    limit_ns: int = 5_000_000_000
    budget_ns: int = 60_000_000_000
    lib_path: str = ""

    def prepare(self, library: Any, address: int) -> None:
        """Puts the words at first - 1."""
        for offset in (OFF_GATHERED, OFF_RELEASED, OFF_CLAIMED, OFF_CONSUMED):
            library.dsv41_hf_set(address + offset, (self.first - 1) & _M32)

    def ping(self, library: Any, address: int) -> tuple[list[int], list[int]]:
        """The stream's half. Returns round trips in ns, and when each round was sent (hand-off only).

        Raises:
            ExchangeFailedError: a round was not answered within the limit.
        """
        probe = load_probe()
        rounds = ctypes.byref(self._rounds())
        sent, done = (ctypes.c_int64 * self.count)(), (ctypes.c_int64 * self.count)()
        if self.kind is Kind.HANDOFF:
            copy = ctypes.create_string_buffer(REPLY_CAPACITY) if self.reply_bytes else None
            made = probe.hf_probe_stream(ctypes.byref(ProbeCalls.of(library)), address, rounds, copy, sent, done)
            trips = [d - s for d, s in zip(done[:made], sent[:made], strict=True)]
        else:
            loop = probe.hf_probe_bare_ping if self.kind is Kind.BARE else probe.hf_probe_futex_ping
            made = loop(address, rounds, done)
            trips = done[:made]
        if made < 0:
            raise ExchangeFailedError(
                f"{self.kind}: a round was not answered within {self.limit_ns / 1e9:g} s; is the other side alive?"
            )
        return trips, sent[:made]

    def pong(self, library: Any, address: int, *, with_times: bool = False) -> list[int]:
        """The proxy's half. Returns when each round was seen, in ns, if asked for (hand-off only)."""
        probe = load_probe()
        if self.kind is Kind.HANDOFF:
            seen = (ctypes.c_int64 * self.count)() if with_times else None
            reply = ctypes.create_string_buffer(REPLY_CAPACITY)
            probe.hf_probe_proxy(
                ctypes.byref(ProbeCalls.of(library)), address, ctypes.byref(self._rounds()), reply, seen
            )
            return list(seen or ())
        loop = probe.hf_probe_bare_pong if self.kind is Kind.BARE else probe.hf_probe_futex_pong
        loop(address, ctypes.byref(self._rounds()))
        return []

    def as_json(self) -> str:
        """For a peer's command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Exchange":
        """What as_json wrote."""
        document = json.loads(text)
        return cls(**(document | {"kind": Kind(document["kind"])}))

    def _rounds(self) -> ProbeRounds:
        return ProbeRounds(
            first=self.first,
            count=self.count,
            reply_bytes=self.reply_bytes,
            pause_ns=self.pause_ns,
            spin_ns=self.spin_ns,
            nap_ns=self.nap_ns,
            limit_ns=self.limit_ns,
            budget_ns=self.budget_ns,
        )


def two_allowed_cpus() -> Cpus:
    """The first two CPUs this thread may use; twice the same where there is one only."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[min(1, len(allowed) - 1)]


def suited_to(exchange: Exchange, cpus: Cpus) -> Exchange:
    """The same, yielding instead of spinning where both sides share one CPU."""
    return replace(exchange, spin_ns=0) if cpus[0] == cpus[1] else exchange


def between_threads(exchange: Exchange, library: Any, address: int, cpus: Cpus) -> list[int]:
    """Round trips in ns between two threads pinned to the CPUs, without the warm-up."""
    exchange.prepare(library, address)
    proxy = PinnedThread(cpus[1], lambda: exchange.pong(library, address))
    stream = PinnedThread(cpus[0], lambda: exchange.ping(library, address)[0])
    trips = stream.result()
    proxy.result()
    return enough_of(exchange, trips)


def between_processes(exchange: Exchange, library: Any, page: SharedPage, cpus: Cpus) -> list[int]:
    """Round trips in ns between this process and a peer, each pinned to its CPU, without the warm-up."""
    exchange.prepare(library, page.address)
    command = program_command("pong", str(os.getpid()), str(page.descriptor), str(cpus[1]), exchange.as_json())
    # Nobody who reads this process's output waits for the peer.
    peer = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(page.descriptor,),
    )
    try:
        trips = PinnedThread(cpus[0], lambda: exchange.ping(library, page.address)[0]).result()
    finally:
        peer.kill()
        peer.wait()
    return enough_of(exchange, trips)


def enough_of(exchange: Exchange, samples: list[int]) -> list[int]:
    """The samples without the warm-up.

    Raises:
        ExchangeFailedError: there are too few to say anything.
    """
    if len(samples) < FEWEST_ROUNDS:
        raise ExchangeFailedError(
            f"{exchange.kind}: {len(samples)} of {exchange.count} rounds were answered in time, "
            f"expected {FEWEST_ROUNDS}"
        )
    return without_warm_up(samples)


def without_warm_up(samples: list[int]) -> list[int]:
    """The samples without the first of them."""
    return samples[max(1, len(samples) // WARM_UP_SHARE) :]


class PinnedThread(Generic[Result]):
    """A thread on one CPU that computes one result."""

    def __init__(self, cpu: int, work: Callable[[], Result]) -> None:
        self._cpu = cpu
        self._work = work
        self._result: list[Result] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"hostflag-cpu-{cpu}", daemon=True)
        self._thread.start()

    def result(self, limit_seconds: float | None = None) -> Result:
        """Waits for it; raises what the work raised.

        Raises:
            ExchangeFailedError: it did not end within the limit; the thread is left behind.
        """
        self._thread.join(limit_seconds)
        if self._thread.is_alive():
            raise ExchangeFailedError(f"a side on CPU {self._cpu} did not end within {limit_seconds:g} s")
        if self._error is not None:
            raise self._error
        return self._result[0]

    def _run(self) -> None:
        try:
            os.sched_setaffinity(0, {self._cpu})  # of this thread only: it ends with its work
            self._result.append(self._work())
        except Exception as error:  # noqa: BLE001  handed to whoever waits
            self._error = error
