"""A way to hand a round to another CPU and get it back, and the slices in which it is measured."""

from dataclasses import dataclass
from typing import Final, Protocol

STEP_SECONDS: Final = 10.0
"""The longest wait for one step, in s: a side that takes longer is dead, however busy the machine."""


@dataclass(frozen=True, slots=True)
class Slice:
    """What both sides of one slice agree on.

    Attributes:
        count: rounds, at most.
        budget_ns: the side that starts rounds ends so long after its first one was answered.
        may_spin: False where both sides share one CPU: spinning there only keeps the other from answering.
        jitter_ns: added to the rest before each round, where there is one: waking from naps depends on when in a nap
            the round comes.
    """

    count: int
    budget_ns: int
    may_spin: bool = True
    jitter_ns: int = 0


@dataclass(frozen=True, slots=True)
class Sent:
    """What the side that starts rounds measured: each round trip, and when each was sent if asked for, in ns."""

    round_trips_ns: list[int]
    sent_ns: list[int]


class Mechanism(Protocol):
    """Both sides of one way to hand over; the two run at the same time, each in a thread or process of its own."""

    def prepare(self, part: Slice) -> None:
        """Makes everything ready; before either side starts."""

    def ping(self, part: Slice) -> Sent:
        """Starts rounds and waits for their answers.

        Raises:
            ExchangeFailedError: an answer did not come in time.
        """

    def pong(self, part: Slice) -> list[int]:
        """Answers until the other side ends. Returns when each round was seen, in ns, if asked for."""
