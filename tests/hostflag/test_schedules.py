"""The real C code in every order of its steps: atomics, copies and clock are the test's (schedule/)."""

import os
import subprocess
from pathlib import Path

import pytest

from hostflag_native.native_library import SOURCE_DIR

HERE = Path(__file__).parent / "schedule"
IS_SOAK = os.environ.get("HOSTFLAG_SOAK") == "1"
START_VALUES = 4
"""How many start values schedule.c walks each scenario with, three of them around the wrap."""


def _walk(directory: Path, *flags: str) -> tuple[int, list[str]]:
    program = directory / "schedule"
    command = ["cc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{HERE}", f"-I{SOURCE_DIR}", *flags]
    subprocess.run([*command, "-pthread", "-o", program, HERE / "schedule.c"], check=True)
    done = subprocess.run([program, *(["all"] if IS_SOAK else [])], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the walk of every scenario said; it found no violation."""
    code, lines = _walk(tmp_path_factory.mktemp("schedule"))
    assert code == 0, lines[-1]
    return lines


@pytest.mark.parametrize(
    "line",
    [
        "publish-against-watchdog 558 publisher=390 watchdog=168",
        "publish-against-fail 135 publisher=60 failer=75",
        "two-publish-against-fail 24924 publisher=7170 other-publisher=7170 failer=10584",
        "publish-with-stream 120 publisher=120 stream=0",
    ],
)
def test_every_interleaving_has_exactly_one_winner_whose_reply_stands(walked: list[str], line: str) -> None:
    assert walked.count(line) == START_VALUES


@pytest.mark.parametrize("scenario", ["publish-against-later-fail", "dead-claimant-against-later-fail", "two-releases"])
def test_the_later_of_two_rounds_has_the_last_word(walked: list[str], scenario: str) -> None:
    assert len([line for line in walked if line.startswith(scenario)]) == START_VALUES


def test_an_exchange_in_two_steps_is_found(tmp_path: Path) -> None:
    code, lines = _walk(tmp_path, "-DSPLIT_EXCHANGE")
    assert code == 1
    assert lines[-1].startswith("publish-against-watchdog: claimed moved back, in the schedule ")
