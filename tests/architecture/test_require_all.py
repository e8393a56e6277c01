"""`--require-all`: what may be missing, and what may not."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

_TESTS = """
import pytest

def test_needs_a_program():
    pytest.skip("install the program")

@pytest.mark.skip(reason="start the server")
def test_needs_a_server():
    pass

@pytest.mark.gpu
def test_needs_a_gpu():
    pytest.skip("no GPU")

@pytest.mark.cases
def test_needs_the_real_machines(machine):
    machine("any")

def test_needs_nothing():
    pass
"""

_WHOLE_MODULE = 'import pytest\npytest.skip("install the package", allow_module_level=True)\n'


def outcome(folder: Path, *options: str) -> str:
    """The summary of pytest on the files in a folder, without CPUPLAN_CASES."""
    arguments = [sys.executable, "-m", "pytest", "-q", "-rfEs", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    settings = ["--rootdir", str(folder), "-c", str(REPOSITORY / "pyproject.toml"), str(folder)]
    environment = {"PYTHONPATH": f"{REPOSITORY}/operator:{REPOSITORY}", "PATH": "/usr/bin:/bin"}
    result = subprocess.run(
        [*arguments, *settings, *options], env=environment, check=False, capture_output=True, text=True, timeout=60
    )
    return result.stdout


def test_without_the_option_what_is_missing_is_skipped_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(_TESTS)
    said = outcome(tmp_path)
    assert "1 passed, 4 skipped" in said
    assert "install the program" in said
    assert "set CPUPLAN_CASES to a folder with machines/, cgroups/ and vectors/" in said


def test_with_the_option_only_gpus_and_the_real_machines_may_be_missing(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(_TESTS)
    said = outcome(tmp_path, "--require-all")
    assert "1 failed, 1 passed, 2 skipped, 1 error" in said
    assert "test_needs_a_program was skipped: Skipped: install the program" in said
    assert "test_needs_a_server was skipped: Skipped: start the server" in said


def test_with_the_option_a_whole_module_cannot_be_skipped(tmp_path: Path) -> None:
    (tmp_path / "test_module.py").write_text(_WHOLE_MODULE)
    said = outcome(tmp_path, "--require-all")
    assert "1 error" in said
    assert "was skipped: Skipped: install the package" in said
