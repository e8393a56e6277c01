"""PCI addresses and cores as values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpuplan.model.topology import HostTopology, PciFunction, normalise_address
from tests.wholecores import whole_cores


@pytest.mark.parametrize(
    ("written", "sysfs"),
    [
        ("0000:1b:00.0", "0000:1b:00.0"),
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("0000:1B:00.0", "0000:1b:00.0"),
        ("1b:00.0", "0000:1b:00.0"),
        ("0:1b:0.0", "0000:1b:00.0"),
        ("00010000:E0:06.7", "10000:e0:06.7"),
        (" 0008:01:00.0\n", "0008:01:00.0"),
        ("0000CFDD:00:00.0", "cfdd:00:00.0"),
    ],
)
def test_every_form_of_an_address_becomes_the_one_of_sysfs(written: str, sysfs: str) -> None:
    assert normalise_address(written) == sysfs


@pytest.mark.parametrize("text", ["", "banana", "0000:1b:00", "0000:1b:00.8", "GPU-1", "0000:1b:00.0/../.."])
def test_text_that_is_no_address_is_only_lowered(text: str) -> None:
    assert normalise_address(text) == text.lower()


@given(st.text(max_size=30))
def test_normalising_twice_changes_nothing_more(text: str) -> None:
    assert normalise_address(normalise_address(text)) == normalise_address(text)


def function(address: str, vendor: str = "0x10de", device_class: str = "0x030200") -> PciFunction:
    return PciFunction(address, vendor, device_class, "0", frozenset({0}))


BOARD = HostTopology(
    online=frozenset(range(4)),
    siblings={},
    functions=(
        function("0000:03:00.0", "0x1a03", "0x030000"),
        function("0000:1b:00.0"),
        function("0000:1c:00.0", "0x1002"),
        function("0000:1d:00.0", "0x10de", "0x030000"),
        function("0000:43:00.0"),
    ),
)


def test_the_gpus_of_the_host_are_those_of_one_vendor_and_class() -> None:
    gpus = BOARD.gpus_like(["0000:43:00.0"])
    assert [gpu.address for gpu in gpus] == ["0000:1b:00.0", "0000:43:00.0"]


def test_the_first_device_that_the_host_knows_decides_the_kind() -> None:
    gpus = BOARD.gpus_like([None, "0000:ff:00.0", "0000:1C:00.0", "0000:1b:00.0"])
    assert [gpu.address for gpu in gpus] == ["0000:1c:00.0"]


@pytest.mark.parametrize("addresses", [[], [None], ["0000:ff:00.0"], [""]])
def test_without_a_device_that_the_host_knows_there_are_no_gpus(addresses: list[str | None]) -> None:
    assert BOARD.gpus_like(addresses) == ()


def test_a_cpu_of_which_nothing_is_known_is_a_core_by_itself() -> None:
    assert BOARD.siblings_of(3) == {3}


def test_a_whole_core_has_the_threads_that_either_list_names() -> None:
    lists = {0: frozenset({0, 1}), 1: frozenset({1}), 2: frozenset({2, 3}), 3: frozenset({2, 3})}
    topology = HostTopology(frozenset(range(4)), lists)
    assert [whole_cores(topology, {cpu}) for cpu in range(4)] == [{0, 1}, {0, 1}, {2, 3}, {2, 3}]
