"""The library exports exactly what engines bind by name, and the binding says the same as the header."""

import ctypes
import re
import subprocess
from pathlib import Path

import pytest

from hostflag_native import load_hostflag
from hostflag_native.native_library import SOURCE_DIR
from hostflag_native.symbols import HOSTFLAG_FUNCTIONS

EXPORTED = [
    "dsv41_hf_version",
    "dsv41_hf_alloc",
    "dsv41_hf_free",
    "dsv41_hf_lock",
    "dsv41_hf_load",
    "dsv41_hf_release_max",
    "dsv41_hf_store",
    "dsv41_hf_set",
    "dsv41_hf_claim",
    "dsv41_hf_publish",
    "dsv41_hf_fail_release",
    "dsv41_hf_wait_geq",
    "dsv41_hf_watchdog_start",
    "dsv41_hf_watchdog_stats",
    "dsv41_hf_watchdog_stop",
]

C_TYPES = {
    "int": ctypes.c_int,
    "uint32_t": ctypes.c_uint32,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "size_t": ctypes.c_size_t,
    "void": None,
}


def _c_type(declared: str) -> object:
    return ctypes.c_void_p if "*" in declared or "[" in declared else C_TYPES[declared.split(maxsplit=1)[0]]


def _declarations() -> list[tuple[str, object, tuple[object, ...]]]:
    text = re.sub(r"/\*.*?\*/", "", (SOURCE_DIR / "hostflag.h").read_text(), flags=re.DOTALL)
    found = re.findall(r"^(\w+ \*?)(dsv41_hf_\w+)\(([^)]*)\);", text, flags=re.MULTILINE)
    return [
        (name, _c_type(result), tuple(_c_type(p.strip()) for p in parameters.split(",") if p.strip() != "void"))
        for result, name, parameters in found
    ]


def test_the_dynamic_symbol_table_holds_the_specified_names_and_no_other(build_directory: Path) -> None:
    load_hostflag()
    (library,) = build_directory.glob("libdsv41_hostflag-*.so")
    table = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    assert sorted(line.split()[-1] for line in table.splitlines()) == sorted(EXPORTED)


def test_the_binding_has_the_headers_functions_in_the_headers_order() -> None:
    bound = [(function.name, function.result, function.parameters) for function in HOSTFLAG_FUNCTIONS]
    assert bound == _declarations()


def test_the_header_declares_the_specified_names() -> None:
    assert [name for name, *_ in _declarations()] == EXPORTED


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_every_source_compiles_without_a_warning(compiler: str, tmp_path: Path) -> None:
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wshadow", "-Wconversion", "-O2", "-fPIC", "-c"]
    for source in SOURCE_DIR.glob("*.c"):
        done = subprocess.run(
            [compiler, *flags, "-o", tmp_path / "object.o", source],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_the_library_needs_nothing_but_the_c_library(build_directory: Path) -> None:
    load_hostflag()
    (library,) = build_directory.glob("libdsv41_hostflag-*.so")
    headers = subprocess.run(["objdump", "-p", library], check=True, capture_output=True, text=True).stdout
    assert set(re.findall(r"NEEDED\s+(\S+)", headers)) <= {"libc.so.6", "libpthread.so.0"}
