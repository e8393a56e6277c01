"""Mechanisms whose both sides are C loops of csrc/probe.c."""

import ctypes
from dataclasses import dataclass, replace
from typing import Any

from hostflag_native.bench.mechanism import STEP_SECONDS, Sent, Slice
from hostflag_native.exchange import Exchange, ExchangeFailedError
from hostflag_native.probe import ProbeRounds, load_probe


@dataclass(frozen=True, slots=True)
class NativeMechanism:
    """The C loops on the words of a page: the hand-off, the bare ping-pong, futexes."""

    exchange: Exchange
    library: Any
    address: int
    with_times: bool = False

    def prepare(self, part: Slice) -> None:
        """Sets the words to just before the first round."""
        self._sized(part).prepare(self.library, self.address)

    def ping(self, part: Slice) -> Sent:
        """One C call."""
        return Sent(*self._sized(part).ping(self.library, self.address))

    def pong(self, part: Slice) -> list[int]:
        """One C call."""
        return self._sized(part).pong(self.library, self.address, with_times=self.with_times)

    def _sized(self, part: Slice) -> Exchange:
        return replace(
            self.exchange,
            count=part.count,
            budget_ns=part.budget_ns,
            spin_ns=self.exchange.spin_ns if part.may_spin else 0,
            pause_ns=self.exchange.pause_ns + part.jitter_ns if self.exchange.pause_ns else 0,
            limit_ns=int(STEP_SECONDS * 1e9),
        )


@dataclass(frozen=True, slots=True)
class DescriptorMechanism:
    """The C loops over descriptors: eventfds, or pipes with an end for each side."""

    there: tuple[int, int]
    """To read and to write what goes from ping to pong."""
    back: tuple[int, int]

    def prepare(self, part: Slice) -> None:
        """Nothing: each slice leaves them empty."""

    def ping(self, part: Slice) -> Sent:
        """One C call."""
        rounds = ProbeRounds(count=part.count, budget_ns=part.budget_ns)
        trips = (ctypes.c_int64 * part.count)()
        made = load_probe().hf_probe_fd_ping(self.there[1], self.back[0], ctypes.byref(rounds), trips)
        if made < 0:
            raise ExchangeFailedError("a descriptor of the exchange was closed")
        return Sent(trips[:made], [])

    def pong(self, part: Slice) -> list[int]:
        """One C call."""
        load_probe().hf_probe_fd_pong(self.there[0], self.back[1])
        return []
