"""Where the library comes from, and that a wrong one is refused by name."""

import ctypes
import subprocess
from pathlib import Path

import pytest

from hostflag_native import StreamSyncError, load_hostflag
from hostflag_native.native_library import HOSTFLAG, SOURCE_DIR


def _build(directory: Path, **changes: str) -> Path:
    """A library from the sources with texts replaced."""
    text = (SOURCE_DIR / "hostflag.c").read_text()
    for old, new in changes.items():
        text = text.replace(old, new)
    source, library = directory / "changed.c", directory / "libdsv41_hostflag.so"
    source.write_text(text)
    subprocess.run(["cc", "-std=c11", "-shared", "-fPIC", f"-I{SOURCE_DIR}", "-o", library, source], check=True)
    return library


def test_an_explicit_path_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = _build(tmp_path)
    monkeypatch.setenv("VLLM_DSPARK_REMOTE_OFL_DIR", "/nowhere")
    assert load_hostflag(str(library))[1] == str(library)


def test_a_bare_name_is_the_file_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader would look for it among the system's libraries."""
    monkeypatch.chdir(_build(tmp_path).parent)
    assert load_hostflag("libdsv41_hostflag.so")[1] == "libdsv41_hostflag.so"
    monkeypatch.setenv("VLLM_DSPARK_REMOTE_OFL_DIR", ".")
    assert load_hostflag()[1] == "libdsv41_hostflag.so"


def test_an_explicit_path_that_is_missing_is_an_error_that_names_it(tmp_path: Path) -> None:
    missing = tmp_path / "none.so"
    with pytest.raises(StreamSyncError, match=f"^VLLM_DSPARK_REMOTE_HOSTFLAG_LIB={missing} does not exist$"):
        load_hostflag(str(missing))


def test_a_copy_in_the_engines_directory_comes_before_the_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = _build(tmp_path)
    monkeypatch.setenv("VLLM_DSPARK_REMOTE_OFL_DIR", str(tmp_path))
    assert load_hostflag()[1] == str(library)


def test_an_engines_directory_without_a_copy_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_DSPARK_REMOTE_OFL_DIR", str(tmp_path))
    assert load_hostflag()[1].endswith(" (compiled at startup)")


def test_the_packages_copy_comes_before_compiling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = _build(tmp_path)
    monkeypatch.setattr(type(HOSTFLAG), "packaged_path", library)
    assert load_hostflag()[1] == str(library)


def test_a_library_without_a_symbol_is_refused_by_name(tmp_path: Path) -> None:
    library = _build(tmp_path, dsv41_hf_fail_release="dsv41_hf_other_name")
    with pytest.raises(StreamSyncError, match=f"{library} is not the expected library: it has no symbol dsv41_hf_fail"):
        load_hostflag(str(library))


def test_a_library_of_another_version_is_refused_by_name(tmp_path: Path) -> None:
    library = _build(tmp_path, **{"INTERFACE_VERSION = 2": "INTERFACE_VERSION = 3"})
    with pytest.raises(StreamSyncError, match=f"{library} has hostflag version 3, expected 2"):
        load_hostflag(str(library))


def test_a_file_that_is_no_library_is_refused_by_name(tmp_path: Path) -> None:
    library = tmp_path / "text.so"
    library.write_text("no library")
    with pytest.raises(StreamSyncError, match=f"{library} cannot be loaded"):
        load_hostflag(str(library))


def test_the_library_comes_bound() -> None:
    library, _ = load_hostflag()
    assert isinstance(library, ctypes.CDLL)
    assert library.dsv41_hf_version() == 2
