"""Programs are built once for the same sources, with a Go compiler that a test can watch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import go_programs
from tests.cluster.console import ClusterError

COMPILER = """\
#!/bin/sh
if [ "$1" = env ]; then echo go1.99.0; exit; fi
echo "$PWD $*" >> "{calls}"
while [ "$1" != -o ]; do shift; done
{build}
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which a compiler that is first on PATH notes its builds, one a line."""
    monkeypatch.setenv("CPUPLAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CPUPLAN_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    install_compiler(tmp_path, 'echo built > "$2"')
    return tmp_path / "calls"


def install_compiler(folder: Path, build: str) -> None:
    compiler = folder / "go"
    compiler.write_text(COMPILER.format(calls=folder / "calls", build=build), encoding="utf-8")
    compiler.chmod(0o755)


def test_a_program_is_built_once_and_then_taken_from_the_cache(calls: Path) -> None:
    first, second = go_programs.built({"pause"}), go_programs.built({"pause"})
    assert first == second
    assert (first / "pause").read_text(encoding="utf-8") == "built\n"
    assert len(calls.read_text(encoding="utf-8").splitlines()) == 1


def test_every_program_is_built_in_its_familys_module_with_its_dependencies_pinned(calls: Path) -> None:
    folder = go_programs.built(go_programs.ALL)
    assert {path.name for path in folder.iterdir()} == go_programs.ALL
    built = calls.read_text(encoding="utf-8").splitlines()
    assert len(built) == len(go_programs.ALL)
    assert [line for line in built if "-mod=readonly -trimpath" not in line] == []


def test_a_build_that_fails_leaves_no_program_behind(calls: Path, tmp_path: Path) -> None:
    install_compiler(tmp_path, 'echo half > "$2"; echo main.go:1: broken >&2; exit 1')
    with pytest.raises(ClusterError, match=r"main\.go:1: broken"):
        go_programs.built({"pause"})
    install_compiler(tmp_path, 'echo whole > "$2"')
    assert (go_programs.built({"pause"}) / "pause").read_text(encoding="utf-8") == "whole\n"


def test_an_unknown_program_is_refused_with_those_there_are(calls: Path) -> None:
    with pytest.raises(ClusterError, match="no program named kubelt; there are crictl, etcd, helm"):
        go_programs.built({"kubelt"})
    assert not calls.exists()
