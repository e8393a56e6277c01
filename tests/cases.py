"""The folder of real cases (machines, cgroups, vectors) that the variable CPUPLAN_CASES names."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

VARIABLE = "CPUPLAN_CASES"
HOW_TO_ENABLE = (
    f"set {VARIABLE} to a folder with machines/, cgroups/ and vectors/ (make test does, where ../shared exists)"
)

# Half of the files of the trees; nothing in cpuplan opens them.
_NEVER_READ = ("/core_id", "/core_cpus_list", "/die_id", "/cluster_id", "/physical_package_id", "/device")

_SHARED_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 1 << 30
"""Free space below which /dev/shm (64 MiB in many containers) is passed over; all trees take 150 MiB of pages."""

_PREFIX = "cpuplan-machines-"
"""Start of the folder's name; the rest is the process id."""


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
    """Writes the files that cpuplan may read of a real machine's tree (`sys`, `proc`) below `folder`."""
    cases = cases_folder()
    if cases is None:
        pytest.skip(HOW_TO_ENABLE)
    made: set[str] = set()
    with tarfile.open(cases / "machines" / name / "root.tar.xz") as archive:
        for member in archive:
            if member.name.endswith(_NEVER_READ):
                continue
            content = archive.extractfile(member)
            if content is None or member.name.startswith("/") or ".." in member.name.split("/"):
                raise ValueError(f"machine {name}: {member.name} is no plain file below the tree")
            target = f"{folder}/{member.name}"
            parent = target.rpartition("/")[0]
            if parent not in made:
                os.makedirs(parent, exist_ok=True)  # noqa: PTH103 - thousands of files: pathlib doubles the time
                made.add(parent)
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            os.write(descriptor, content.read())
            os.close(descriptor)


@contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder in memory where there is room, else a temporary one; removed at the end.

    Creating ten thousands of files on a disk takes longer than all tests of ring 1 together. What a killed
    run left is removed by the next.
    """
    place = _SHARED_MEMORY if _has_room(_SHARED_MEMORY) else Path(tempfile.gettempdir())
    for left in place.glob(f"{_PREFIX}*"):
        if not Path("/proc", left.name.removeprefix(_PREFIX)).exists():
            shutil.rmtree(left, ignore_errors=True)
    folder = place / f"{_PREFIX}{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _has_room(folder: Path) -> bool:
    return os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > _ROOM_BYTES
