"""The measured loops: header, symbol map and binding say the same."""

import ctypes
import re

from hostflag_native.native_library import SOURCE_DIR
from hostflag_native.probe import PROBE_FUNCTIONS, ProbeCalls, ProbeRounds

C_TYPES = {
    "int": ctypes.c_int,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "size_t": ctypes.c_size_t,
    "void": None,
}


def _c_type(declared: str) -> object:
    return ctypes.c_void_p if "*" in declared else C_TYPES[declared.replace("const ", "").split()[0]]


def _header() -> str:
    return re.sub(r"/\*.*?\*/", "", (SOURCE_DIR / "probe.h").read_text(), flags=re.DOTALL)


def _members(struct: str) -> list[str]:
    (body,) = re.findall(rf"struct {struct} {{(.*?)\n}};", _header(), flags=re.DOTALL)
    return re.findall(r"(\w+);|\(\*(\w+)\)", body)


def test_the_binding_has_the_headers_functions_in_the_headers_order() -> None:
    found = re.findall(r"^(\w+ \*?)(hf_probe_\w+)\(([^)]*)\);", _header(), flags=re.MULTILINE)
    declared = [
        (name, _c_type(result), tuple(_c_type(p) for p in parameters.split(","))) for result, name, parameters in found
    ]
    assert [(function.name, function.result, function.parameters) for function in PROBE_FUNCTIONS] == declared


def test_the_symbol_map_exports_the_headers_functions() -> None:
    exported = re.findall(r"hf_probe_\w+", (SOURCE_DIR / "probe.map").read_text())
    assert exported == [function.name for function in PROBE_FUNCTIONS]


def test_the_structures_have_the_headers_members() -> None:
    assert [name for name, *_ in ProbeRounds._fields_] == [a or b for a, b in _members("hf_probe_rounds")]
    assert [name for name, *_ in ProbeCalls._fields_] == [a or b for a, b in _members("hf_probe_calls")]
