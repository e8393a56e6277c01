"""The folder of real cases (machines, cgroups, vectors) that the variable CPUPLAN_CASES names."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

VARIABLE = "CPUPLAN_CASES"
HOW_TO_ENABLE = (
    f"set {VARIABLE} to a folder with machines/, cgroups/ and vectors/ (make test does, where ../shared exists)"
)


def cases_folder() -> Path | None:
    """The folder of cases; None where the variable is not set.

    Raises:
        pytest.UsageError: it is set to what is no such folder.
    """
    value = os.environ.get(VARIABLE)
    if not value:
        return None
    folder = Path(value).resolve()
    missing = [name for name in ("machines", "cgroups", "vectors") if not (folder / name).is_dir()]
    if missing:
        raise pytest.UsageError(f"{VARIABLE}={value}: {', '.join(missing)} not found there; unset it or correct it")
    return folder


def names_below(kind: str) -> list[str]:
    """The names of the cases of one kind (`machines`, `cgroups`), sorted; empty without cases."""
    folder = cases_folder()
    return [] if folder is None else sorted(path.name for path in (folder / kind).iterdir() if path.is_dir())


def each_case(argument: str, names: Sequence[str]) -> Callable[..., object]:
    """Parametrises a test by case; without cases it is one test that is skipped and says how to enable it."""
    skipped = pytest.param("no-cases", marks=pytest.mark.skip(reason=HOW_TO_ENABLE))
    mark = pytest.mark.parametrize(argument, list(names) or [skipped])
    return lambda function: pytest.mark.cases(mark(function))


def unpack_machine(name: str, folder: Path) -> None:
    """Writes the tree of a real machine (`sys`, `proc`) below `folder`."""
    cases = cases_folder()
    if cases is None:
        pytest.skip(HOW_TO_ENABLE)
    with tarfile.open(cases / "machines" / name / "root.tar.xz") as archive:
        archive.extractall(folder, filter="data")
