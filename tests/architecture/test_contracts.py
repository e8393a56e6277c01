"""Who may import whom, and what the library needs at run time."""

import subprocess
import sys
from pathlib import Path

import pytest

import cpuplan

REPOSITORY = Path(__file__).parents[2]
OPERATOR = REPOSITORY / "operator"

# Prints the top-level packages outside the standard library that an import brought in.
_IMPORT = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    module = importlib.import_module(name)
    [getattr(module, public) for public in getattr(module, "__all__", ())]
print(*sorted({name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names - {"__main__"}))
"""


def foreign_packages(*modules: str) -> str:
    """The packages outside the standard library that importing the modules loads, in a bare interpreter."""
    arguments = [sys.executable, "-I", "-S", "-c", _IMPORT, str(OPERATOR), *modules]
    return subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def modules_of(*packages: str) -> list[str]:
    """Every module of some packages of cpuplan, by its full name."""
    files = [path for package in packages for path in sorted((OPERATOR / "cpuplan" / package).glob("*.py"))]
    return [".".join(path.relative_to(OPERATOR).with_suffix("").parts) for path in files]


def test_the_import_contracts_hold() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    if not program.exists():
        pytest.skip("import-linter is not installed: pip install '.[lint]'")
    environment = {"PYTHONPATH": f"{OPERATOR}:{REPOSITORY}", "PATH": "/usr/bin:/bin"}
    arguments = [str(program), "--no-cache", "--no-logo"]
    result = subprocess.run(
        arguments, cwd=REPOSITORY, env=environment, check=False, capture_output=True, text=True, timeout=60
    )
    assert (result.returncode, result.stdout) == (0, result.stdout)
    assert " 0 broken." in result.stdout


def test_importing_the_library_loads_the_standard_library_alone() -> None:
    assert foreign_packages("cpuplan") == "cpuplan"


def test_everything_that_runs_inside_an_engine_loads_the_standard_library_alone() -> None:
    assert foreign_packages(*modules_of("model", "planning", "host", "inprocess")) == "cpuplan"


def test_importing_the_library_does_not_load_what_it_needs_only_now_and_then() -> None:
    script = f"import sys; sys.path.insert(0, {str(OPERATOR)!r}); import cpuplan; print(*sys.modules)"
    arguments = [sys.executable, "-I", "-S", "-c", script]
    loaded = subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=60).stdout.split()
    assert {"asyncio", "subprocess", "socket", "ssl", "xml.etree", "tomllib", "argparse", "logging"} & set(
        loaded
    ) == set()


def test_every_public_name_is_there() -> None:
    assert [name for name in cpuplan.__all__ if not hasattr(cpuplan, name)] == []


def test_the_source_root_is_no_package_that_would_hide_the_module_operator() -> None:
    assert not (OPERATOR / "__init__.py").exists()
