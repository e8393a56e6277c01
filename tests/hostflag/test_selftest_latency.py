"""How the two ways of a round are told apart, though host and device have a clock each."""

import pytest

from hostflag_native.selftest.device_latency import TimedRound, split_ways

DAY_NS = 86_400e9


def _round(released_ns: float, to_stream_ns: float, to_host_ns: float) -> TimedRound:
    """A round as two clocks see it that are a day apart."""
    went_on_ns = released_ns + to_stream_ns
    return TimedRound(released_ns, went_on_ns + DAY_NS, went_on_ns + to_host_ns)


def test_what_a_way_takes_above_the_fastest_is_exact() -> None:
    ways = split_ways([_round(0, 800, 800), _round(5_000, 1_800, 800), _round(10_000, 800, 4_800)])
    assert ways is not None
    assert (ways.to_stream_ns, ways.to_host_ns) == ([800, 1_800, 800], [800, 800, 4_800])
    assert ways.uncertain_ns == 800


def test_of_the_fastest_round_both_ways_count_as_alike_and_the_error_is_said() -> None:
    ways = split_ways([_round(0, 500, 1_500), _round(5_000, 700, 1_500)])
    assert ways is not None
    assert (ways.to_stream_ns, ways.to_host_ns) == ([1_000, 1_200], [1_000, 1_000])
    assert ways.uncertain_ns == 1_000


def test_the_fastest_of_each_way_need_not_be_one_round() -> None:
    """The bounds come from different rounds then, and are further apart than nothing only by both."""
    ways = split_ways([_round(0, 500, 9_000), _round(20_000, 9_000, 700)])
    assert ways is not None
    assert ways.uncertain_ns == 600
    assert min(ways.to_stream_ns) == min(ways.to_host_ns) == 600


@pytest.mark.parametrize("rounds", [[TimedRound(0, 0, 100), TimedRound(10_000, 500, 10_100)]])
def test_clocks_that_contradict_each_other_say_nothing(rounds: list[TimedRound]) -> None:
    assert split_ways(rounds) is None
