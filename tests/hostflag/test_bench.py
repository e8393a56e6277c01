"""`python -m hostflag_native bench`, run once with few rounds: what it tells, not how fast it is."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hostflag_native.__main__ import main

ROUND_TRIPS = [
    "bare ping-pong (the limit)",
    "hand-off, spin",
    "hand-off, spin, 4 KiB reply",
    "hand-off, nap 50 us",
    "futex",
    "eventfd",
    "pipe",
    "hand-off, spin, proxy in Python",
    "hand-off, spin, both sides in Python",
]
ONE_WAYS = [
    "hand-off, spin, stream to proxy",
    "hand-off, spin, proxy to stream",
    "hand-off, nap 50 us, stream to proxy",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, build_directory: Path) -> tuple[str, dict[str, Any]]:
    """The table and the JSON of one short run."""
    file = tmp_path_factory.mktemp("bench") / "figures.json"
    command = [sys.executable, "-W", "error", "-m", "hostflag_native", "bench", "--rounds", "8", "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout, json.loads(file.read_text())


@pytest.fixture(scope="module")
def figures(run: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return run[1]


def _names(figures: dict[str, Any], pair: str, measure: str) -> list[str]:
    return [row["name"] for row in figures["rows"] if (row["pair"], row["measure"]) == (pair, measure)]


def _row(figures: dict[str, Any], pair: str, name: str) -> dict[str, Any]:
    return next(row for row in figures["rows"] if (row["pair"], row["name"]) == (pair, name))


def test_every_way_is_measured_between_two_threads(figures: dict[str, Any]) -> None:
    assert sorted(_names(figures, "threads", "round trip")) == sorted([*ROUND_TRIPS, "threading.Event"])
    assert sorted(_names(figures, "threads", "one way")) == sorted(ONE_WAYS)


def test_every_way_is_measured_between_two_processes(figures: dict[str, Any]) -> None:
    primitives = ["multiprocessing.Event", "multiprocessing.Pipe"]
    assert sorted(_names(figures, "processes", "round trip")) == sorted([*ROUND_TRIPS, *primitives])
    assert sorted(_names(figures, "processes", "one way")) == sorted(ONE_WAYS)


@pytest.mark.parametrize("pair", ["threads", "processes"])
def test_a_way_there_takes_no_longer_than_there_and_back(figures: dict[str, Any], pair: str) -> None:
    there = _row(figures, pair, "hand-off, nap 50 us, stream to proxy")
    trip = _row(figures, pair, "hand-off, nap 50 us")
    keys = ("minNs", "p50Ns", "maxNs")
    assert [min(there[key], trip[key]) for key in keys] == [there[key] for key in keys]


@pytest.mark.parametrize("pair", ["threads", "processes"])
def test_the_bare_ping_pong_is_its_own_limit(figures: dict[str, Any], pair: str) -> None:
    bare = _row(figures, pair, "bare ping-pong (the limit)")
    assert (bare["p50OverLimit"], bare["p99OverLimit"]) == (1, 1)


def test_the_watchdog_is_never_early(figures: dict[str, Any]) -> None:
    assert figures["watchdog"]["sinceGathered"]["minNs"] >= 0


def test_every_way_to_wait_has_its_cpu_share(figures: dict[str, Any]) -> None:
    assert list(figures["waitingCpuShare"]) == [
        "spin",
        "yield",
        "nap 50 us",
        "nap 50 us, no round for 100 ms",
        "bare naps of 50 us (the limit)",
        "threading.Event",
    ]


def test_an_idle_wait_is_ended_by_its_round(figures: dict[str, Any]) -> None:
    assert figures["idleWakes"]["count"] >= 3
    assert figures["idleWakes"]["minNs"] > 0


def test_the_json_says_on_what_machine_and_under_what_load(figures: dict[str, Any]) -> None:
    assert {"cpuModel", "kernel", "cpuCount", "cpus", "coreDistance", "cpuLimit"} <= figures["machine"].keys()
    assert {"loadBefore", "loadAfter", "throttledUs", "stolenSeconds"} <= figures["conditions"].keys()


def test_the_table_has_every_row_and_every_bar(run: tuple[str, dict[str, Any]]) -> None:
    table, figures = run
    lines = table.splitlines()
    names = {row["name"] for row in figures["rows"]}
    assert {name for name in names if any(line.startswith(name) for line in lines)} == names
    assert [line.split(maxsplit=1)[0] == "met" for line in lines if line.startswith(("met ", "MISSED "))] == [
        bar["met"] for bar in figures["bars"]
    ]


def test_json_to_standard_output_comes_alone_and_both_sides_may_share_one_cpu(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cpu = min(os.sched_getaffinity(0))
    assert main(["bench", "--rounds", "4", "--json", "-", "--cpus", f"{cpu},{cpu}"]) == 0
    assert json.loads(capsys.readouterr().out)["machine"]["coreDistance"] == "one CPU"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--cpus", "0"], "'0' is not two CPUs, as in 2,3"),
        (["--cpus", "0,x"], "'0,x' is not two CPUs, as in 2,3"),
        (["--cpus", "0,99999"], "CPU 99999 is not among those this process may use"),
        (["--rounds", "0"], "'0' is not a number of rounds, expected 1 or more"),
        (["--rounds", "-5"], "'-5' is not a number of rounds, expected 1 or more"),
    ],
)
def test_wrong_arguments_are_refused_with_a_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    with pytest.raises(SystemExit, match="64"):
        main(["bench", *arguments])
    assert sentence in capsys.readouterr().err


def test_a_library_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--lib", "/nowhere/libdsv41_hostflag.so"]) == 1
    assert capsys.readouterr() == (
        "",
        "bench: VLLM_DSPARK_REMOTE_HOSTFLAG_LIB=/nowhere/libdsv41_hostflag.so does not exist\n",
    )
