"""When the node is planned again; time is passed in."""

import random

import pytest

from cpuplan.agent.schedule import FOLLOW_UP_SECONDS, LONGEST_POLL_SECONDS, RESYNC_SECONDS, Schedule

WAITING = frozenset({"pod"})


def end_turn(
    made: Schedule, now: float, *, awaited: frozenset[str] = frozenset(), within_seconds: float | None = None
) -> None:
    """A turn that took no time."""
    made.turn_begins()
    made.turn_ends(now, awaited=awaited, within_seconds=within_seconds)


def schedule() -> Schedule:
    """A schedule that has planned once, at time 0."""
    made = Schedule(0.0, source=random.Random(1))  # noqa: S311 - the same jitter in every run
    end_turn(made, 0.0)
    return made


def test_the_first_turn_is_at_once() -> None:
    assert Schedule(7.0).due == 7.0


def test_a_planned_pods_change_is_due_at_once_and_bursts_are_one_turn() -> None:
    made = schedule()
    made.pod_changed(0.01, is_planned=True)
    made.pod_changed(0.02, is_planned=True)
    assert made.due == 0.05
    end_turn(made, 0.05, awaited=frozenset())
    made.pod_changed(9.0, is_planned=True)
    assert made.due == 9.0


def test_a_change_during_a_turn_is_for_the_next_one() -> None:
    made = schedule()
    made.turn_begins()
    made.pod_changed(7.0, is_planned=True)
    made.turn_ends(8.0, awaited=frozenset())
    assert made.due == 8.05


def test_another_pods_change_can_wait_a_second() -> None:
    made = schedule()
    made.pod_changed(5.0, is_planned=False)
    assert made.due == 6.0


@pytest.mark.parametrize("is_planned", [True, False])
def test_after_a_change_the_cpusets_are_looked_at_once_more_when_the_kubelet_has_rewritten_them(
    is_planned: bool,
) -> None:
    made = schedule()
    made.pod_changed(5.0, is_planned=is_planned)
    end_turn(made, 6.0)
    made.pod_changed(7.0, is_planned=is_planned)
    end_turn(made, 8.0)
    assert made.due == 5.0 + FOLLOW_UP_SECONDS
    end_turn(made, 16.0)
    assert made.due >= 16.0 + 0.8 * RESYNC_SECONDS


def test_without_events_there_is_a_slow_jittered_look() -> None:
    dues = {Schedule(0.0).due for _ in range(3)} | {schedule().due}
    assert 0.8 * RESYNC_SECONDS <= schedule().due <= 1.2 * RESYNC_SECONDS
    assert len(dues) == 2


def test_devices_are_asked_for_with_doubling_pauses() -> None:
    made = schedule()
    pauses = []
    now = 0.0
    for _ in range(10):
        end_turn(made, now, awaited=WAITING)
        pauses.append(round(made.due - now, 3))
        now = made.due
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_a_newly_waiting_pod_is_polled_quickly_again() -> None:
    made = schedule()
    for now in range(20):
        end_turn(made, float(now), awaited=WAITING)
    assert made.due == 19.0 + LONGEST_POLL_SECONDS
    end_turn(made, 30.0, awaited=WAITING | {"another"})
    assert made.due == 30.05


def test_something_else_that_is_due_earlier_comes_first() -> None:
    made = schedule()
    end_turn(made, 1.0, awaited=frozenset(), within_seconds=2.5)
    assert made.due == 3.5
