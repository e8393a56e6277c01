"""CPU sets as the kernel writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpuplan.model.cpulist import MAX_CPU, format_cpu_list, parse_cpu_list

CPU_SETS = st.frozensets(st.integers(0, MAX_CPU), max_size=200)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0", {0}),
        ("0-3", {0, 1, 2, 3}),
        ("0-1,4", {0, 1, 4}),
        ("4,0-1", {0, 1, 4}),
        ("0-2,1-3", {0, 1, 2, 3}),
        ("007", {7}),
        ("", set()),
        (" \n", set()),
        (",,", set()),
        ("0,,2,", {0, 2}),
        (" 0-1 , 4 \n", {0, 1, 4}),
        ("3-1", set()),
        ("3-1,5", {5}),
        (f"{MAX_CPU}", {MAX_CPU}),
    ],
)
def test_a_kernel_list_names_its_cpus(text: str, cpus: set[int]) -> None:
    assert parse_cpu_list(text) == cpus


@pytest.mark.parametrize(
    "text",
    ["a", "0-", "-1", "0-1-2", "0..3", "0x1", "1.5", "0-7:2/4", "0 1", "0\n1", "+1", "1_0", "\u0661", "²", "0\x00"],
)
def test_a_part_that_is_no_number_or_range_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="is not a CPU number or a range like 0-3"):
        parse_cpu_list(text)


@pytest.mark.parametrize("text", [f"0-{MAX_CPU + 1}", "999999999", "0-999999999", "5,65537"])
def test_a_cpu_beyond_every_kernel_is_refused_before_the_range_is_expanded(text: str) -> None:
    with pytest.raises(ValueError, match=f"is beyond CPU {MAX_CPU}"):
        parse_cpu_list(text)


def test_an_endless_text_is_quoted_in_short() -> None:
    with pytest.raises(ValueError, match=r"\.\.\.") as refusal:
        parse_cpu_list("1," * 5000 + "x" * 5000)
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize(
    ("cpus", "text"),
    [([], ""), ([3], "3"), ([4, 0, 1], "0-1,4"), ([1, 1, 2], "1-2"), (range(8), "0-7"), ([0, 2, 4], "0,2,4")],
)
def test_a_cpu_set_is_written_ascending_in_ranges(cpus: list[int], text: str) -> None:
    assert format_cpu_list(cpus) == text


@given(CPU_SETS)
def test_what_is_written_reads_back_equal(cpus: frozenset[int]) -> None:
    assert parse_cpu_list(format_cpu_list(cpus)) == cpus


@given(CPU_SETS)
def test_no_shorter_list_of_ranges_exists(cpus: frozenset[int]) -> None:
    starts = [cpu for cpu in cpus if cpu - 1 not in cpus]
    assert len(format_cpu_list(cpus).split(",")) == max(1, len(starts))
