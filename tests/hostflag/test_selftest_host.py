"""The self-test's host part, run as a process: verdict, exit code, JSON, termination log, time limit, injection."""

import json
import os
from pathlib import Path

import pytest

from hostflag_native import selftest as selftest_module
from hostflag_native.selftest import Outcome
from tests.hostflag.selftest_process import finish, selftest, start

HOST_CHECKS = [
    "library",
    "page",
    "order",
    "wrap",
    "one-winner",
    "deadline",
    "fail-all",
    "fail-ahead",
    "shared-page",
    "killed-die-before-claim",
    "killed-die-after-claim",
    "killed-die-after-release",
    "killed-unwatched",
    "latency",
]


def test_the_host_part_passes_here_and_tells_every_check(tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    told = selftest("--part", "host", "--termination-log", str(log))
    assert told.exit_code == 0, told.line
    assert told.line[:80].startswith("pass ok: 14 checks in ")
    assert told.outcomes("host") == dict.fromkeys(HOST_CHECKS, "pass")
    message = log.read_text()
    assert message.partition("\n")[0] == told.line
    assert json.loads(message.partition("\n")[2])["parts"]["host"][0]["name"] == "library"
    assert len(message.encode()) <= 4096


def test_one_cpu_is_enough() -> None:
    """Both sides of each measurement yield then instead of spinning against each other."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    process = start("--part", "host")
    os.sched_setaffinity(0, allowed)
    told = finish(process)
    assert told.exit_code == 0, told.line
    assert told.details["environment"]["cpusAllowedCount"] == 1


def test_without_a_termination_log_none_is_made(tmp_path: Path) -> None:
    selftest("--part", "host", "--time-limit", "0.001", "--termination-log", str(tmp_path / "none"))
    assert list(tmp_path.iterdir()) == []


def test_the_time_limit_ends_it_with_what_was_found_so_far() -> None:
    told = selftest("--part", "host", "--time-limit", "0.001")
    assert told.exit_code == 1
    assert told.line.startswith("fail selftest-timeout: ")
    assert told.line.endswith(": did not end in time for the limit of 0.001 s")


def test_a_library_that_is_missing_fails_with_its_name() -> None:
    told = selftest("--part", "host", "--lib", "/no/such/library.so")
    assert (told.exit_code, told.line) == (
        1,
        "fail host-library: VLLM_DSPARK_REMOTE_HOSTFLAG_LIB=/no/such/library.so does not exist",
    )


def test_the_engines_setting_names_the_library_to_test() -> None:
    told = selftest("--part", "host", VLLM_DSPARK_REMOTE_HOSTFLAG_LIB="/no/such/library.so")
    assert told.line.startswith("fail host-library: ")


def test_the_function_gives_the_same_verdict_as_a_value() -> None:
    verdict = selftest_module.run(time_limit_seconds=20)
    assert (verdict.outcome, verdict.exit_code, verdict.fault) == (Outcome.PASS, 0, "")
    assert [check["name"] for check in verdict.details["parts"]["host"]] == HOST_CHECKS


def test_the_function_refuses_to_test_nothing() -> None:
    with pytest.raises(ValueError, match="neither the host part nor the device part is asked for"):
        selftest_module.run(host_part=False)
