"""What variables and command lines say of thread pools."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cpuplan.model.pools import visible_pools

OMP = "OMP_NUM_THREADS"


@pytest.mark.parametrize(
    ("variables", "counts"),
    [
        pytest.param({}, {}, id="nothing"),
        pytest.param({OMP: "64", "MKL_NUM_THREADS": "8"}, {OMP: 64, "MKL_NUM_THREADS": 8}, id="values"),
        pytest.param({OMP: None}, {OMP: None}, id="a value from elsewhere"),
        pytest.param({OMP: "4,3"}, {OMP: None}, id="a list"),
        pytest.param({OMP: ""}, {OMP: None}, id="nothing in it"),
        pytest.param({OMP: "²"}, {OMP: None}, id="a digit to Unicode alone"),
        pytest.param({OMP: "9" * 5000}, {OMP: None}, id="more digits than Python converts"),
        pytest.param({"PATH": "8"}, {}, id="another variable"),
    ],
)
def test_variables_say_how_many_threads_pools_have(
    variables: Mapping[str, str | None], counts: Mapping[str, int | None]
) -> None:
    assert visible_pools(variables).thread_counts == counts


@pytest.mark.parametrize(
    ("words", "is_sized"),
    [
        pytest.param(["/opt/bin/cpuplan", "run", "--", "x"], True, id="cpuplan run"),
        pytest.param(["env", "A=b", "cpuplan", "run"], True, id="behind another command"),
        pytest.param(["cpuplan", "env"], False, id="another command of ours"),
        pytest.param(["run"], False, id="one word"),
    ],
)
def test_cpuplan_run_sizes_pools_itself(words: list[str], is_sized: bool) -> None:
    assert visible_pools({}, words).is_sized is is_sized


def test_pools_whose_variables_cannot_all_be_seen_may_be_sized() -> None:
    assert visible_pools({}, has_hidden_variables=True).is_sized
