"""The orders that the words need on a weakly ordered CPU are in the instructions themselves, without fences.

clang compiles for arm64 with this machine's C headers, which differ in nothing that matters here.
"""

import re
import subprocess
from pathlib import Path

import pytest

from hostflag_native.native_library import SOURCE_DIR


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The assembly of each exported function."""
    headers = tmp_path_factory.mktemp("headers")
    (headers / "gnu").mkdir()
    (headers / "gnu" / "stubs-32.h").touch()
    (multiarch,) = Path("/usr/include").glob("*-linux-gnu")
    command = ["clang", "--target=aarch64-linux-gnu", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    command += ["-D__regparm__(x)=__unused__", f"-I{headers}", f"-I{multiarch}", "-S", "-o", "-"]
    assembly = subprocess.run([*command, SOURCE_DIR / "hostflag.c"], check=True, capture_output=True, text=True).stdout
    return dict(re.findall(r"^(dsv41_hf_\w+):.*?\n(.*?)^\.Lfunc_end", assembly, flags=re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize(
    ("function", "instructions"),
    [
        ("dsv41_hf_load", {"ldar"}),
        ("dsv41_hf_store", {"stlr"}),
        ("dsv41_hf_set", {"stlr"}),
        ("dsv41_hf_claim", {"ldaxr", "stlxr"}),
        ("dsv41_hf_release_max", {"ldaxr", "stlxr"}),
        ("dsv41_hf_publish", {"ldaxr", "stlxr"}),
        ("dsv41_hf_fail_release", {"ldaxr", "stlxr"}),
        ("dsv41_hf_wait_geq", {"ldar"}),
    ],
)
def test_words_are_read_with_acquire_and_written_with_release(
    functions: dict[str, str], function: str, instructions: set[str]
) -> None:
    assert set(re.findall(r"\t(ldar|stlr|ldaxr|stlxr|ldapr)\t", functions[function])) == instructions


def test_no_order_rests_on_a_fence(functions: dict[str, str]) -> None:
    assert [name for name, body in functions.items() if re.search(r"\tdmb\t", body)] == []


def test_a_spin_loop_pauses(functions: dict[str, str]) -> None:
    assert re.search(r"\tisb\b", functions["dsv41_hf_wait_geq"])
