"""The Promela model of the hand-off, checked by spin; and the same model with each guard taken out, which must fail.

The scenarios that are too large for every run play fewer rounds here; HOSTFLAG_SOAK=1 (make soak) plays three in all.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

MODEL = Path(__file__).parent / "model" / "hostflag.pml"
IS_SOAK = os.environ.get("HOSTFLAG_SOAK") == "1"

NAMES = {
    name: int(value)
    for _, name, value, *_ in (line.split() for line in MODEL.read_text().splitlines() if line.startswith("#define "))
    if value.isdigit()
}


@dataclass(frozen=True, slots=True)
class Search:
    """What a run of the checker said."""

    error: str
    is_complete: bool


@pytest.fixture(scope="session")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled checker of the model."""
    if shutil.which("spin") is None:
        pytest.skip("install spin (Debian's package) to check the model")
    directory = tmp_path_factory.mktemp("model")
    subprocess.run(["spin", "-a", MODEL], cwd=directory, check=True, capture_output=True)
    optimisation = "-O2" if IS_SOAK else "-O0"
    command = ["cc", optimisation, "-w", "-DSAFETY", "-DMEMLIM=6000", "-o", "pan", "pan.c"]
    subprocess.run(command, cwd=directory, check=True)
    return directory / "pan"


def _search(checker: Path, scenario: str, mutation: str, rounds: int) -> Search:
    environment = {"SCENARIO": str(NAMES[scenario]), "MUTATION": str(NAMES[mutation]), "ROUNDS": str(rounds)}
    said = subprocess.run(
        [checker, "-m100000", "-w26" if IS_SOAK else "-w20"],
        cwd=checker.parent,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "errors: " in said
    errors = [line.removeprefix("pan:1: ") for line in said.splitlines() if line.startswith("pan:1: ")]
    return Search(errors[0] if errors else "", "Search not completed" not in said)


@pytest.mark.parametrize(
    ("scenario", "rounds"),
    [("LIVE", 2), ("DYING", 2), ("UNWATCHED", 3), ("TWO_FAIL", 1), ("NATIVE", 2), ("SLOW", 1)],
)
def test_no_interleaving_breaks_the_hand_off(checker: Path, scenario: str, rounds: int) -> None:
    assert _search(checker, scenario, "NONE", 3 if IS_SOAK else rounds) == Search("", is_complete=True)


@pytest.mark.parametrize(
    ("mutation", "scenario", "found"),
    [
        ("CLAIM_ANY", "LIVE", "is_decided"),
        ("CLAIM_SPLIT", "LIVE", "is_decided"),
        ("RELEASE_STORE", "SLOW", "released-"),
        ("RELEASE_SPLIT", "SLOW", "released-"),
        ("NO_CLAIMANT_WAIT", "LIVE", "writer_count==0"),
        ("NO_CLAIMANT_WAIT", "NATIVE", "writer_count==0"),
        ("NO_CONSUMER_WAIT", "LIVE", "consumed-gathered"),
        ("CLAIM_AT_ONCE", "LIVE", "writer_count==0"),
        ("AGAIN", "TWO_FAIL", "invalid end state"),
        ("NO_FINISH", "TWO_FAIL", "invalid end state"),
        ("NO_WATCHDOG", "UNWATCHED", "invalid end state"),
        ("NO_DEATH_WATCH", "DYING", "invalid end state"),
        ("NO_GATHERED_WAIT", "LIVE", "first==second"),
        ("NO_RELEASE_WAIT", "LIVE", "first==second"),
    ],
)
def test_without_one_of_its_guards_the_hand_off_breaks(checker: Path, mutation: str, scenario: str, found: str) -> None:
    assert found in _search(checker, scenario, mutation, 2).error


def test_every_guard_that_the_model_can_take_out_is_taken_out() -> None:
    source = MODEL.read_text()
    guards = [name for name in NAMES if f"mutation == {name}" in source or f"mutation != {name}" in source]
    tested = Path(__file__).read_text()
    assert [name for name in guards if f'("{name}", ' not in tested] == []
