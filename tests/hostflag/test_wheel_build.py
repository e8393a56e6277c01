"""The wheel's build with and without a C compiler, as far as CMake decides it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hostflag_native.native_library import PACKAGE_DIR

Done = subprocess.CompletedProcess[str]


def _cmake() -> str:
    beside_python = Path(sys.executable).with_name("cmake")
    found = str(beside_python) if beside_python.exists() else shutil.which("cmake")
    if found is None:
        pytest.skip("install cmake to test the wheel's build")
    return found


def _configure(directory: Path, path: str, **environment: str) -> Done:
    command = [_cmake(), "-S", PACKAGE_DIR, "-B", directory / "build", "-G", "Unix Makefiles"]
    command += ["-DCMAKE_MAKE_PROGRAM=/bin/true"] if path != os.environ["PATH"] else []
    return subprocess.run(command, env={"PATH": path} | environment, capture_output=True, text=True, check=False)


def test_without_a_compiler_the_build_goes_on_and_says_so(tmp_path: Path) -> None:
    done = _configure(tmp_path, "/nowhere")
    assert done.returncode == 0, done.stderr
    assert "the wheel is built WITHOUT libdsv41_hostflag.so" in " ".join(done.stderr.split())


def test_without_a_compiler_a_build_that_needs_the_library_fails(tmp_path: Path) -> None:
    done = _configure(tmp_path, "/nowhere", HOSTFLAG_REQUIRE_LIBRARY="1")
    assert done.returncode != 0
    assert "libdsv41_hostflag.so cannot be built, and HOSTFLAG_REQUIRE_LIBRARY is set" in " ".join(done.stderr.split())


def test_with_a_compiler_both_libraries_are_built_and_installed(tmp_path: Path) -> None:
    done = _configure(tmp_path, os.environ["PATH"], HOSTFLAG_REQUIRE_LIBRARY="1")
    assert done.returncode == 0, done.stderr
    subprocess.run([_cmake(), "--build", tmp_path / "build"], check=True, capture_output=True)
    install = [_cmake(), "--install", tmp_path / "build", "--prefix", tmp_path / "wheel"]
    subprocess.run(install, check=True, capture_output=True)
    installed = sorted(str(path.relative_to(tmp_path / "wheel")) for path in (tmp_path / "wheel").rglob("*.so"))
    assert installed == ["hostflag_native/libdsv41_hostflag.so", "hostflag_native/libhostflag_probe.so"]
