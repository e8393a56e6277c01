"""Device strings to PCI addresses, as the GPU runtime counts devices."""

from __future__ import annotations

import pytest

from cpuplan.inprocess.devices import device_addresses


class Runtime:
    """A resolver that remembers what it was asked."""

    def __init__(self, *addresses: str | None) -> None:
        self.addresses = addresses
        self.asked: list[tuple[str, int]] = []

    def __call__(self, kind: str, index: int) -> str | None:
        self.asked.append((kind, index))
        return self.addresses[index]


def test_the_runtimes_index_counts() -> None:
    runtime = Runtime("0000:9d:00.0", "0000:1b:00.0")

    assert device_addresses(["cuda:1", "cuda:0"], resolver=runtime) == ["0000:1b:00.0", "0000:9d:00.0"]


def test_addresses_come_in_sysfs_form() -> None:
    assert device_addresses(["cuda:0"], resolver=Runtime("00000000:1B:00.0")) == ["0000:1b:00.0"]


@pytest.mark.parametrize("device", ["cpu", "cpu:0", "cuda", "xpu"])
def test_a_cpu_and_a_bare_type_have_no_address_and_ask_nobody(device: str) -> None:
    runtime = Runtime("0000:1b:00.0")

    assert device_addresses([device], resolver=runtime) == [None]
    assert runtime.asked == []


def test_a_device_that_the_platform_does_not_report_has_no_address() -> None:
    assert device_addresses(["cuda:0"], resolver=Runtime(None)) == [None]


@pytest.mark.parametrize("device", ["cuda:x", "cuda:", "cuda:-1", "cuda:1.0", "cuda:0:0", "cpu:x", "cuda:\u0661"])
def test_an_index_that_is_no_number_is_an_error(device: str) -> None:
    with pytest.raises(ValueError, match=r"is not a device index; expected a form like cuda:0"):
        device_addresses([device], resolver=Runtime("0000:1b:00.0"))
