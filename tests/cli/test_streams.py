"""Standard output and standard error that are closed, full, without a reader, or cannot say every character."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import LIMIT_SECONDS, REPOSITORY

ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'operator'}:{REPOSITORY}"}


def in_a_shell(command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A shell line in which `cpuplan` is the command of this checkout."""
    return subprocess.run(
        ["bash", "-c", f'cpuplan() {{ "{sys.executable}" -m cpuplan "$@"; }}; {command}'],
        env=ENVIRONMENT | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


@pytest.mark.parametrize("words", ["show", "show -o json", "env -o json", "plan", "--help"])
def test_output_that_nobody_wants_is_no_error(words: str) -> None:
    done = in_a_shell(f"cpuplan {words} >&-")

    assert (done.returncode, done.stderr if words != "--help" else "") == (0, "")


@pytest.mark.parametrize("words", ["show", "show -o json", "env -o json", "plan"])
def test_a_full_disk_under_the_output_is_one_sentence(words: str) -> None:
    done = in_a_shell(f"cpuplan {words} >/dev/full")

    name = words.split(maxsplit=1)[0]
    assert (done.returncode, done.stderr) == (
        1,
        f"cpuplan {name}: the output cannot be written: No space left on device\n",
    )


def test_a_reader_that_leaves_early_is_told_nothing() -> None:
    done = in_a_shell("cpuplan show --why | true; echo ${PIPESTATUS[0]}")

    assert (done.stdout.strip() in ("0", "1"), done.stderr) == (True, "")


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full", ">&- 2>&-"])
def test_an_engine_starts_whatever_became_of_its_log(tmp_path: Path, redirection: str) -> None:
    started = tmp_path / "started"

    done = in_a_shell(f"cpuplan run --plan-dir /nowhere -- touch {started} {redirection}")

    assert (done.returncode, started.exists(), done.stdout) == (0, True, "")


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize(("words", "exit_code"), [("plan --mask 0-x", 2), ("run -- /nowhere", 127)])
def test_an_error_that_cannot_be_told_keeps_its_exit_code(words: str, exit_code: int, redirection: str) -> None:
    done = in_a_shell(f"cpuplan {words} {redirection}")

    assert (done.returncode, done.stdout) == (exit_code, "")


@pytest.mark.parametrize("redirection", [">&-", ">/dev/full", "2>&-"])
def test_a_pod_starts_whatever_becomes_of_its_init_containers_output(tmp_path: Path, redirection: str) -> None:
    log = tmp_path / "termination-log"
    log.touch()

    done = in_a_shell(f"cpuplan init --plan-dir /nowhere --selftest skip --termination-log {log} {redirection}")

    assert (done.returncode, log.read_text(encoding="utf-8").split()[0]) == (0, "untested")


def test_a_character_that_the_terminal_cannot_say_is_escaped(tmp_path: Path) -> None:
    folder = tmp_path / "märz"
    (folder / "devices/system/cpu").mkdir(parents=True)
    (folder / "devices/system/cpu/online").write_text("0\n", encoding="ascii")

    done = in_a_shell(f"cpuplan show --why --sysfs-root '{folder}'", PYTHONIOENCODING="ascii")

    assert (done.returncode, "m\\xe4rz/devices/system/cpu/online" in done.stdout) == (0, True)
