"""Inputs made to be slow or to meet a limit of Python: answered like others, and within pytest's limit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cpuplan.agent.workers import workers_of
from cpuplan.host.devices import place_device
from cpuplan.host.override import MOST_BYTES, read_override
from cpuplan.host.podcgroups import PodCgroups
from cpuplan.host.root import HostRoot
from cpuplan.host.threads import read_thread_start
from cpuplan.model.cpulist import MAX_CPU, parse_cpu_list
from cpuplan.model.errors import CpuPlanError, OverrideError
from cpuplan.model.podplan import PodPlan
from cpuplan.planning.setting import parse_setting

pytestmark = pytest.mark.timeout(30)

DIGITS = "9" * 5000
"""More digits than Python turns into a number (sys.int_info.default_max_str_digits is 4300)."""

EVERY_CPU = f"0-{MAX_CPU},"


def nccl(numa_node: str, affinity: str) -> str:
    pci = '<pci busid="0000:1b:00.0" class="0x030200"/>'
    return f'<system><cpu numaid="{numa_node}" affinity="{affinity}">{pci}</cpu></system>'


def own(node: str, cpus: str) -> str:
    return f'[[gpus]]\naddress = "0000:1b:00.0"\nnode = {node}\ncpus = "{cpus}"\n'


def test_a_list_that_names_all_cpus_again_and_again_is_read_once() -> None:
    assert len(parse_cpu_list(EVERY_CPU * 100_000)) == MAX_CPU + 1


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(nccl(DIGITS, "ff"), id="a NUMA node of 5000 digits"),
        pytest.param(nccl("²", "ff"), id="a NUMA node that is a digit to Unicode alone"),
        pytest.param(nccl("0", "-1"), id="a negative mask"),
        pytest.param(nccl("0", "f_f"), id="a mask with an underscore"),
        pytest.param(nccl("0", "ffffffff," * 400_000), id="a mask of 12 million CPUs"),
        pytest.param(nccl("0", "f" * 3_000_000), id="a group of 12 million CPUs"),
        pytest.param("<a>" * 200_000, id="elements that never end"),
        pytest.param(own(DIGITS, "0"), id="a number of 5000 digits"),
        pytest.param(own("0x" + "f" * 50_000, "0"), id="a hexadecimal number of 50000 digits"),
        pytest.param(own("0", "0-99999999"), id="a range beyond every CPU"),
        pytest.param("a = " + "[" * 100_000, id="arrays in arrays"),
        pytest.param("a." * 100_000 + "b = 1", id="tables in tables"),
        pytest.param("x" * (MOST_BYTES + 1), id="more than a topology file has"),
    ],
)
def test_an_override_that_is_none_is_one_error_that_names_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "override"
    path.write_text(text)
    with pytest.raises(OverrideError, match="override") as caught:
        read_override(path)
    assert len(str(caught.value)) < 1000


def test_a_large_mask_of_an_override_is_read(tmp_path: Path) -> None:
    path = tmp_path / "override"
    path.write_text(nccl("0", ",".join(["ffffffff"] * 256)))
    (placement,) = read_override(path).placements
    assert placement.cpus == frozenset(range(8192))


@pytest.mark.parametrize("line", ["simd_count", "simd_count ", " ", "\tx", f"location_id {DIGITS}", "location_id -1"])
def test_an_odd_line_of_a_partitions_properties_hides_no_other(tmp_path: Path, line: str) -> None:
    root = HostRoot.at(tmp_path)
    (root.sys / "devices/platform/amdgpu_xcp_1/drm/renderD129").mkdir(parents=True)
    node = root.sys / "class/kfd/kfd/topology/nodes/1"
    node.mkdir(parents=True)
    (node / "properties").write_text(f"{line}\ndomain 0\ndrm_render_minor 129\n{line}\n")
    assert "amdgpu_xcp_1 cannot be placed" in getattr(place_device(root, "amdgpu_xcp_1"), "why", "")


def test_a_start_time_of_too_many_digits_is_unknown(tmp_path: Path) -> None:
    folder = tmp_path / "self" / "task" / "7"
    folder.mkdir(parents=True)
    (folder / "stat").write_text(f"7 (x) S {' '.join(['0'] * 18)} {DIGITS}\n")
    assert read_thread_start(7, HostRoot(proc=tmp_path)) is None


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * 200_000, id="arrays in arrays"),
        pytest.param('{"a":' * 200_000, id="objects in objects"),
        pytest.param(f'{{"version":{DIGITS}}}', id="a version of 5000 digits"),
        pytest.param(json.dumps({"version": 1, "generation": 1, "containers": [[]]}), id="containers in a list"),
        pytest.param('"' + "x" * 250_000 + '"', id="one long text"),
    ],
)
def test_a_plan_that_is_none_is_one_short_error(text: str) -> None:
    with pytest.raises(CpuPlanError) as caught:
        PodPlan.from_json(text)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("parse", [parse_setting, lambda text: workers_of(text, [])], ids=["setting", "workers"])
@pytest.mark.parametrize("text", [DIGITS, "0," * 100_000, "-" * 200_000, "²", "\u0661"], ids=len)
def test_a_users_value_that_is_none_is_one_short_error(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(CpuPlanError) as caught:
        parse(text)
    assert len(str(caught.value)) < 1000


def test_a_name_that_no_file_system_takes_is_no_container(tmp_path: Path) -> None:
    root = HostRoot.at(tmp_path)
    (root.cgroup / "kubepods").mkdir(parents=True)
    assert PodCgroups(root).read("u" * 5000, "c" * 5000) is None
