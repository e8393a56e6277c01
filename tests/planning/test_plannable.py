"""Which CPUs of a mask a plan may use."""

from __future__ import annotations

import pytest

from cpuplan.model.cpulist import format_cpu_list, parse_cpu_list
from cpuplan.planning.plannable import plannable_cpus


@pytest.mark.parametrize(
    ("mask", "online", "isolated", "reserved", "plannable"),
    [
        pytest.param("0-7", "0-7", "", "", "0-7", id="nothing is kept from plans"),
        pytest.param("0-7", "0-3", "", "", "0-3", id="offline CPUs"),
        pytest.param("0-7", "0-7", "2-3", "", "0-1,4-7", id="isolated CPUs"),
        pytest.param("0-7", "0-7", "2-3", "0", "1,4-7", id="isolated and reserved CPUs"),
        pytest.param("2-3", "0-7", "2-3", "", "2-3", id="isolated CPUs alone were given on purpose"),
        pytest.param("2-3,8", "0-7", "2-3", "", "2-3", id="isolated ones are all that is online"),
        pytest.param("2-3", "0-7", "2-3", "3", "2", id="reserved among isolated CPUs alone"),
        pytest.param("0-1", "0-7", "", "0-1", "", id="reserved CPUs alone"),
        pytest.param("0-3", "0-7", "2-3", "0-1", "", id="reserved CPUs are all that is not isolated"),
        pytest.param("8-9", "0-7", "", "", "", id="offline CPUs alone"),
    ],
)
def test_offline_isolated_and_reserved_cpus_are_left_out(
    mask: str, online: str, isolated: str, reserved: str, plannable: str
) -> None:
    cpus = plannable_cpus(
        parse_cpu_list(mask),
        online=parse_cpu_list(online),
        isolated=parse_cpu_list(isolated),
        reserved=parse_cpu_list(reserved),
    )

    assert format_cpu_list(cpus) == plannable
