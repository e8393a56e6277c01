"""A process is known by more than its number."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import process_identity
from tests.cluster.process_identity import identify


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing, ended afterwards."""
    process = subprocess.Popen(["sleep", "300"])
    yield process
    process.kill()
    process.wait()


def test_a_running_process_is_recognised_from_its_file(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    identity = identify(sleeper.pid)
    assert identity is not None
    identity.write(tmp_path / "it.json")
    found = process_identity.read(tmp_path / "it.json")
    assert found is not None
    assert found.is_running()


@pytest.mark.parametrize(
    "change", [{"start_ticks": 1}, {"boot_id": "another"}], ids=["reused number", "after a reboot"]
)
def test_another_process_with_the_same_number_is_neither_taken_for_it_nor_ended(
    sleeper: subprocess.Popen[bytes], change: dict[str, Any]
) -> None:
    identity = identify(sleeper.pid)
    assert identity is not None
    stale = dataclasses.replace(identity, **change)
    process_identity.end(stale, limit_seconds=0)
    assert not stale.is_running()
    assert identity.is_running()


def test_a_process_that_ignores_the_request_is_killed_after_the_limit() -> None:
    process = subprocess.Popen(["sh", "-c", "trap '' TERM; echo; exec sleep 300"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    identity = identify(process.pid)
    assert identity is not None
    process_identity.end(identity, limit_seconds=0)
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()


@pytest.mark.parametrize("text", ["", "12", "{", '{"pid": 3}', "[]"])
def test_a_file_that_a_killed_run_left_half_written_names_nobody(tmp_path: Path, text: str) -> None:
    file = tmp_path / "it.json"
    file.write_text(text, encoding="utf-8")
    assert process_identity.read(file) is None


def test_this_process_has_an_identity_and_a_number_beyond_the_limit_has_none() -> None:
    assert identify(os.getpid()) is not None
    assert identify(1 << 23) is None
