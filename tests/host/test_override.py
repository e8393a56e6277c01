"""Reading where an administrator says that GPUs are."""

from __future__ import annotations

from pathlib import Path

import pytest

from cpuplan.host.override import read_override
from cpuplan.model.cpulist import parse_cpu_list
from cpuplan.model.errors import OverrideError
from cpuplan.model.topology import GpuPlacement

NCCL_XML = """<system version="1">
  <cpu numaid="0" affinity="0000ffff,00000003" arch="x86_64">
    <pci busid="0000:1B:00.0" class="0x030200" link_speed="16 GT/s"><gpu dev="0" sm="90"/></pci>
    <pci busid="0000:18:00.0" class="0x020700"/>
  </cpu>
  <cpu numaid="1" affinity="">
    <pci busid="0000:60:00.0" class="0x060400"><pci busid="0000:61:00.0" class="0x030200"/></pci>
  </cpu>
</system>
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "override"
    file.write_text(text)
    return file


def test_a_table_places_a_gpu_on_a_node_with_its_own_cpus(tmp_path: Path) -> None:
    file = written(tmp_path, '[[gpus]]\naddress = "00000000:1B:00.0"\nnode = 1\ncpus = "4-7"\n')
    assert read_override(file).placements == (GpuPlacement("0000:1b:00.0", 1, parse_cpu_list("4-7")),)


def test_a_table_without_cpus_means_those_of_the_node(tmp_path: Path) -> None:
    file = written(tmp_path, '[[gpus]]\naddress = "0000:1b:00.0"\nnode = 0\n')
    assert read_override(file).placements == (GpuPlacement("0000:1b:00.0", 0, None),)


def test_an_nccl_file_places_its_gpus_also_behind_switches_and_nothing_else(tmp_path: Path) -> None:
    assert read_override(written(tmp_path, NCCL_XML)).placements == (
        GpuPlacement("0000:1b:00.0", 0, parse_cpu_list("0-1,32-47")),
        GpuPlacement("0000:61:00.0", 1, None),
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("[[gpus]\n", "expected TOML with [[gpus]], or NCCL's XML", id="no-toml"),
        pytest.param("a = 1\n", "expected [[gpus]] tables and nothing else", id="other-toml"),
        pytest.param('[[gpus]]\naddress = "gpu0"\nnode = 0\n', "expected a PCI address such as", id="no-address"),
        pytest.param(
            '[[gpus]]\naddress = "0000:1b:00.0"\nnode = -1\n', "expected the number of a NUMA node", id="node-unknown"
        ),
        pytest.param(
            '[[gpus]]\naddress = "0000:1b:00.0"\nnode = 0\ncpus = "a-b"\n', "expected a CPU list such as", id="bad-cpus"
        ),
        pytest.param('[[gpus]]\naddress = "0000:1b:00.0"\nnod = 0\n', "expected the keys address, node", id="bad-key"),
        pytest.param(
            '[[gpus]]\naddress = "0000:1b:00.0"\nnode = 0\n' * 2, "is placed twice; keep one", id="placed-twice"
        ),
        pytest.param("<system>", "expected NCCL's topology XML", id="no-xml"),
        pytest.param("<!DOCTYPE x><system/>", "document type is not accepted", id="xml-with-entities"),
        pytest.param("<system/>", "no GPU in it", id="xml-without-gpus"),
        pytest.param(NCCL_XML.replace('"0000ffff,00000003"', '"xyz"'), "expected a hexadecimal mask", id="bad-mask"),
        pytest.param(NCCL_XML.replace('numaid="0"', 'numaid="-1"'), "expected a number", id="xml-node-unknown"),
    ],
)
def test_a_malformed_override_is_refused_with_one_sentence_that_names_the_file(
    tmp_path: Path, text: str, sentence: str
) -> None:
    file = written(tmp_path, text)
    with pytest.raises(OverrideError) as caught:
        read_override(file)
    assert str(caught.value).startswith(f"topology override {file}: ")
    assert sentence in str(caught.value)


def test_a_missing_override_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(OverrideError, match="no-such-file: No such file or directory; give an existing file"):
        read_override(tmp_path / "no-such-file")
