"""How slices are cut, alternated and ended, and what becomes of a peer that dies."""

import os
import signal
from collections.abc import Iterator

import pytest

from hostflag_native import load_hostflag
from hostflag_native.bench.contestants import Contestant, Label, Measure, Pair
from hostflag_native.bench.mechanism import Sent, Slice
from hostflag_native.bench.peers import Peer, process_peer, thread_peer
from hostflag_native.bench.slices import Schedule, measure_pair
from hostflag_native.exchange import ExchangeFailedError, PinnedThread

CPU = min(os.sched_getaffinity(0))
ONE_CPU = (CPU, CPU)

OVER_AT_ONCE = Slice(count=1000, budget_ns=0, may_spin=False)


class Recorded:
    """A mechanism that notes whose turn it is; each round trip takes its own number in ns."""

    def __init__(self, turns: list[Label], label: Label) -> None:
        self._turns = turns
        self._label = label

    def prepare(self, part: Slice) -> None:
        self._turns.append(self._label)

    def ping(self, part: Slice) -> Sent:
        return Sent(list(range(part.count)), [1000] * part.count)

    def pong(self, part: Slice) -> list[int]:
        return [1001] * part.count


class HerePeer:
    """A peer that answers when asked."""

    def __init__(self, *labels: Label) -> None:
        self.turns: list[Label] = []
        self._contestants = tuple(
            Contestant(Recorded(self.turns, label), 1.0, ((label, Measure.ROUND_TRIP),)) for label in labels
        )

    def contestants(self) -> tuple[Contestant, ...]:
        return self._contestants

    def start(self, index: int, part: Slice) -> None:
        self._answer = self._contestants[index].mechanism.pong(part)

    def answer(self, limit_seconds: float) -> list[int]:
        return self._answer


@pytest.fixture(scope="module")
def threads() -> Iterator[Peer]:
    with thread_peer(load_hostflag()[0], "", CPU) as peer:
        yield peer


def _of(peer: Peer, label: Label) -> int:
    labels = [{name for name, _ in contestant.rows} for contestant in peer.contestants()]
    return next(i for i, names in enumerate(labels) if label in names)


def test_contestants_take_turns_and_each_starts_as_often_as_the_others() -> None:
    peer = HerePeer(Label.BARE, Label.HANDOFF, Label.FUTEX)
    measure_pair(Pair.THREADS, peer, Schedule(12, ONE_CPU))
    bare, handoff, futex = Label.BARE, Label.HANDOFF, Label.FUTEX
    assert peer.turns == [bare, handoff, futex, handoff, futex, bare, futex, bare, handoff]


def test_the_first_round_of_each_slice_is_left_out() -> None:
    (row,) = measure_pair(Pair.THREADS, HerePeer(Label.BARE), Schedule(12, ONE_CPU))
    assert (row.times.count, row.times.min_ns, row.times.max_ns) == (9, 1, 3)


def test_few_rounds_make_few_slices_and_never_none() -> None:
    assert [Schedule(rounds, ONE_CPU).slice_count for rounds in (1, 7, 8, 100_000)] == [1, 1, 2, 20]


def test_a_slice_on_one_cpu_does_not_spin() -> None:
    contestant = HerePeer(Label.BARE).contestants()[0]
    assert not Schedule(8, ONE_CPU).part(contestant, 0).may_spin
    assert Schedule(8, (0, 1)).part(contestant, 0).may_spin


def test_one_way_times_lie_between_sending_and_the_end_of_the_round_trip() -> None:
    sent = Sent([30, 50], [1000, 2000])
    assert Measure.THERE.of(sent, [1010, 2020, 9999]) == [10, 20]
    assert Measure.BACK.of(sent, [1010, 2020, 9999]) == [20, 30]


@pytest.mark.parametrize(
    "label",
    [
        Label.BARE,
        Label.HANDOFF,
        Label.NAP,
        Label.FUTEX,
        Label.EVENTFD,
        Label.PIPE,
        Label.PYTHON,
        Label.PYTHON_BOTH,
        Label.THREADING_EVENT,
    ],
)
def test_a_slice_whose_budget_is_used_up_ends_on_both_sides(threads: Peer, label: Label) -> None:
    index = _of(threads, label)
    mechanism = threads.contestants()[index].mechanism
    mechanism.prepare(OVER_AT_ONCE)
    threads.start(index, OVER_AT_ONCE)
    sent = PinnedThread(CPU, lambda: mechanism.ping(OVER_AT_ONCE)).result(60)
    threads.answer(60)
    assert 1 <= len(sent.round_trips_ns) <= 2


def test_a_second_process_that_dies_is_noticed_at_once() -> None:
    with process_peer("", CPU) as peer:
        pid = peer.process_id
        peer.start(_of(peer, Label.PROCESS_PIPE), OVER_AT_ONCE)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ExchangeFailedError, match=r"^the second process died$"):
            peer.answer(60)
        with pytest.raises(ExchangeFailedError, match=r"^the second process died$"):
            peer.start(_of(peer, Label.BARE), OVER_AT_ONCE)


def test_no_process_is_left_behind() -> None:
    with process_peer("", CPU) as peer:
        pidfd = os.pidfd_open(peer.process_id)
    with pytest.raises(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    os.close(pidfd)
