"""A machine can be written from a shell, as the README does it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cpuplan.host.root import HostRoot
from cpuplan.host.sysfs import read_topology

REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 60


def write(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs the module as a program for which every warning is an error."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.machines.tree", *words],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": f"{REPOSITORY / 'operator'}:{REPOSITORY}"},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


def test_a_machine_is_written_without_a_word(tmp_path: Path) -> None:
    done = write("small-vm", str(tmp_path))

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert read_topology(HostRoot.at(tmp_path)).online == {0, 1}


def test_an_unknown_machine_is_answered_with_the_names(tmp_path: Path) -> None:
    done = write("banana", str(tmp_path))

    assert done.returncode == 2
    assert done.stderr.startswith("usage: python3 -m tests.machines.tree NAME FOLDER; names: gb200-memory-nodes, ")
