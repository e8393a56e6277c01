"""The orders that the words need on a weakly ordered CPU are in the instructions themselves, without fences.

clang compiles for arm64 with this machine's C headers, which differ in nothing that matters here.
"""

import re
import subprocess
from collections import Counter
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
        ("dsv41_hf_load", {"ldar": 1}),
        ("dsv41_hf_store", {"stlr": 1}),
        ("dsv41_hf_set", {"stlr": 1}),
        ("dsv41_hf_claim", {"ldaxr": 1, "stlxr": 1}),
        ("dsv41_hf_release_max", {"ldaxr": 1, "stlxr": 1}),
        ("dsv41_hf_publish", {"ldaxr": 2, "stlxr": 2}),
        ("dsv41_hf_fail_release", {"ldaxr": 2, "stlxr": 2}),
    ],
)
def test_words_are_moved_with_acquire_and_release(
    functions: dict[str, str], function: str, instructions: dict[str, int]
) -> None:
    """Counted, since a function may have two words. `ldxr` and `stxr` are the instructions without an order."""
    found = re.findall(r"\t(ldar|stlr|ldaxr|stlxr|ldapr|ldxr|stxr|cas\w*)\t", functions[function])
    assert Counter(found) == instructions


def test_a_wait_reads_its_word_with_acquire_only(functions: dict[str, str]) -> None:
    body = functions["dsv41_hf_wait_geq"]
    assert set(re.findall(r"\t(ldar|ldaxr|ldapr|ldxr)\t", body)) == {"ldar"}
    assert re.findall(r"\tldr\tw\d+, \[x0\]", body) == []


def test_no_order_rests_on_a_fence(functions: dict[str, str]) -> None:
    assert [name for name, body in functions.items() if re.search(r"\tdmb\t", body)] == []


def test_a_spin_loop_pauses(functions: dict[str, str]) -> None:
    assert re.search(r"\tisb\b", functions["dsv41_hf_wait_geq"])
