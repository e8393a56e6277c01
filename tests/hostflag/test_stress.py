"""Threads under the sanitizers, and proxy processes that die anywhere; short here, 10^7 rounds with HOSTFLAG_SOAK=1."""

import os
import subprocess
from pathlib import Path

import pytest

from hostflag_native.native_library import SOURCE_DIR
from tests.hostflag.stress import processes

HERE = Path(__file__).parent / "stress"
IS_SOAK = os.environ.get("HOSTFLAG_SOAK") == "1"
THREAD_ROUNDS = 1_000_000 if IS_SOAK else 4_000
PROCESS_ROUNDS = 10_000_000 if IS_SOAK else 10_000
LIFE_ROUNDS = processes.LIFE_ROUNDS if IS_SOAK else 1_000
JUST_BELOW_WRAP = 2**32 - 1000


def _race(
    directory: Path, sources: Path, *flags: str, rounds: int = THREAD_ROUNDS
) -> "subprocess.CompletedProcess[str]":
    program = directory / "threads"
    command = ["gcc", "-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{SOURCE_DIR}", *flags, "-pthread"]
    subprocess.run([*command, "-o", program, HERE / "threads.c", sources / "hostflag.c"], check=True)
    arguments = [program, str(rounds), "1", str(JUST_BELOW_WRAP)]
    return subprocess.run(arguments, capture_output=True, text=True, check=False)


@pytest.mark.timeout(3600 if IS_SOAK else 60)
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_racing_threads_are_clean_under_the_sanitizers(tmp_path: Path, sanitizer: str) -> None:
    done = _race(tmp_path, SOURCE_DIR, f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-3000:]
    assert done.stdout.startswith("published ")


def test_the_thread_sanitizer_sees_an_order_that_is_missing(tmp_path: Path) -> None:
    text = (SOURCE_DIR / "hostflag_platform.h").read_text()
    relaxed = text.replace("_release)", "_relaxed)").replace("_acq_rel", "_relaxed").replace("_acquire)", "_relaxed)")
    (tmp_path / "relaxed.h").write_text(relaxed)
    done = _race(
        tmp_path,
        SOURCE_DIR,
        "-fsanitize=thread",
        f'-DHOSTFLAG_PLATFORM_HEADER="{tmp_path}/relaxed.h"',
        rounds=2_000,
    )
    assert "WARNING: ThreadSanitizer: data race" in done.stderr


def test_the_race_finds_a_publish_that_claims_nothing(tmp_path: Path) -> None:
    text = (SOURCE_DIR / "hostflag.c").read_text()
    (tmp_path / "hostflag.c").write_text(
        text.replace("if (!advance(claimed, v, &was))\n        return 0;\n    if (n", "if (n")
    )
    done = _race(tmp_path, tmp_path, "-Wno-unused-parameter")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] in {"a round has not exactly one winner", "a reply is torn or of another round"}


@pytest.mark.timeout(7200 if IS_SOAK else 100)
def test_proxies_that_are_late_killed_or_kill_themselves_break_no_round() -> None:
    totals = processes.play(PROCESS_ROUNDS, seed=1, life_rounds=LIFE_ROUNDS)
    assert totals.rounds >= PROCESS_ROUNDS
    assert 0 < totals.failed_ahead <= totals.deaths
