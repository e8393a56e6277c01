"""Which ConfigMap holds which node: stable, bounded, the same for the same cluster."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpuplan.controller.packing import MOST_DATA_BYTES, Share, configmap_name, configmap_number, node_shares, pack


def share(node: str, size: int) -> Share:
    """A share that takes `size` bytes in a ConfigMap."""
    return Share(node, "x" * (size - len(node)))


def names_of(packed: dict[str, dict[str, str]]) -> dict[str, list[str]]:
    """Which nodes each ConfigMap holds."""
    return {name: sorted(data) for name, data in packed.items()}


def test_without_plans_there_is_one_empty_configmap() -> None:
    assert pack("cpuplan", [], {}) == {"cpuplan": {}}


def test_nodes_fill_one_configmap_after_the_other() -> None:
    packed = pack("cpuplan", [share("a", 60), share("b", 60), share("c", 30)], {}, most_bytes=100)
    assert names_of(packed) == {"cpuplan": ["a", "c"], "cpuplan-1": ["b"]}


def test_a_node_stays_where_it_is_while_others_come() -> None:
    current = {"cpuplan": {"m": ""}, "cpuplan-1": {"z": ""}}
    packed = pack("cpuplan", [share("a", 50), share("m", 60), share("z", 60)], current, most_bytes=100)
    assert names_of(packed) == {"cpuplan": ["m"], "cpuplan-1": ["z"], "cpuplan-2": ["a"]}


def test_a_node_that_outgrew_its_configmap_moves_and_the_others_stay() -> None:
    current = {"cpuplan": {"a": "", "b": ""}}
    packed = pack("cpuplan", [share("a", 60), share("b", 60)], current, most_bytes=100)
    assert names_of(packed) == {"cpuplan": ["a"], "cpuplan-1": ["b"]}


def test_a_mostly_empty_index_is_gathered_into_fewer_configmaps() -> None:
    current = {"cpuplan": {"a": ""}, "cpuplan-1": {"b": ""}, "cpuplan-2": {"c": ""}}
    packed = pack("cpuplan", [share("a", 20), share("b", 20), share("c", 20)], current, most_bytes=100)
    assert names_of(packed) == {"cpuplan": ["a", "b", "c"]}


def test_the_first_configmap_stays_even_when_it_is_empty() -> None:
    packed = pack("cpuplan", [share("b", 60)], {"cpuplan": {"a": ""}, "cpuplan-1": {"b": ""}}, most_bytes=100)
    assert names_of(packed) == {"cpuplan": [], "cpuplan-1": ["b"]}


def test_a_node_larger_than_a_configmap_is_shared_among_several() -> None:
    shares = node_shares("big", [f'"p{i}":"{"x" * 40}"' for i in range(4)], most_bytes=100)
    packed = pack("cpuplan", shares, {}, most_bytes=100)
    assert names_of(packed) == {"cpuplan": ["big"], "cpuplan-1": ["big"], "cpuplan-2": ["big"], "cpuplan-3": ["big"]}


@given(sizes=st.lists(st.integers(0, 60), max_size=8))
def test_no_share_is_larger_than_it_may_be_unless_its_only_entry_is(sizes: list[int]) -> None:
    entries = [f'"p{number}":"{"x" * size}"' for number, size in enumerate(sizes)]
    shares = node_shares("node", entries, most_bytes=80)
    assert [share for share in shares if share.size_bytes > 80 and len(json.loads(share.text)) > 1] == []
    assert [key for share in shares for key in json.loads(share.text)] == [f"p{number}" for number in range(len(sizes))]


def test_a_nodes_entries_are_members_of_one_json_object_in_order() -> None:
    assert node_shares("n", ['"b":2', '"a":1']) == [Share("n", '{\n"a":1,\n"b":2\n}\n')]


@pytest.mark.parametrize(
    ("name", "number"),
    [("cpuplan", 0), ("cpuplan-1", 1), ("cpuplan-12", 12), ("cpuplan-0", None), ("cpuplan-01", None)],
)
def test_only_names_of_the_index_have_a_number(name: str, number: int | None) -> None:
    assert configmap_number("cpuplan", name) == number


@pytest.mark.parametrize("name", ["cpuplan-x", "cpuplan-", "cpuplan-1x", "other", "cpuplan-²"])
def test_foreign_configmaps_have_no_number(name: str) -> None:
    assert configmap_number("cpuplan", name) is None


@given(number=st.integers(0, 10_000))
def test_a_configmaps_name_and_number_are_inverse(number: int) -> None:
    assert configmap_number("cpuplan", configmap_name("cpuplan", number)) == number


_SIZES = st.dictionaries(st.text("abcdefgh", min_size=1, max_size=3), st.integers(10, 90), max_size=20)


@given(before=_SIZES, after=_SIZES)
def test_nothing_is_lost_nothing_overflows_and_packing_again_changes_nothing(
    before: dict[str, int], after: dict[str, int]
) -> None:
    old = pack("cpuplan", [share(node, size) for node, size in before.items()], {}, most_bytes=100)
    shares = [share(node, size) for node, size in after.items()]
    packed = pack("cpuplan", shares, old, most_bytes=100)
    assert sorted(item for data in packed.values() for item in data.items()) == sorted((s.node, s.text) for s in shares)
    assert all(sum(len(n) + len(t) for n, t in data.items()) <= 100 for data in packed.values())
    assert pack("cpuplan", shares, packed, most_bytes=100) == packed


def test_the_bound_leaves_room_for_escapes_below_512_kib() -> None:
    assert MOST_DATA_BYTES < 512 << 10
