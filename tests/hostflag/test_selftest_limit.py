"""The self-test ends within its limit and tells what it knows, whatever hangs, crashes or is ended around it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostflag_native import selftest as selftest_module
from hostflag_native.selftest import process as process_module
from tests.hostflag.programs import is_alive, run_program
from tests.hostflag.selftest_process import finish, start
from tests.hostflag.standin_driver import compile_standin
from tests.waiting import until

LIMIT = ("--part", "device", "--time-limit", "6")
"""Long enough for a busy machine to come to the check that hangs."""

LATE = "did not end in time for the limit of 6 s"
DEVICE_0 = "device 0 at 0000:a0:00.0"


@pytest.fixture(scope="module")
def standin(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of the stand-in driver library."""
    return str(compile_standin(tmp_path_factory.mktemp("standin")).parent)


@pytest.fixture(scope="module", autouse=True)
def hanging(standin: str) -> Iterator[dict[str, "subprocess.Popen[str]"]]:
    """Self-tests whose driver hangs, each ended by its limit: all started before the tests."""
    faults = ["hang-in-load", "hang-in-init", "hang-in-query", "stuck hang-in-query", "blocking-query"]
    started = {each: start(*LIMIT, LD_LIBRARY_PATH=standin, STANDIN_FAULTS=each) for each in faults}
    started["found so far"] = start(*LIMIT, LD_LIBRARY_PATH=standin, STANDIN_FAULTS="hang-in-query")
    yield started
    for process in started.values():
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("faults", "exit_code", "line"),
    [
        ("hang-in-load", 1, f"fail selftest-timeout: device driver: {LATE}"),
        ("hang-in-init", 1, f"fail selftest-timeout: device driver: {LATE}"),
        (
            "hang-in-query",
            1,
            f"fail selftest-timeout: {DEVICE_0}: park-and-go: {LATE}; a release let the parked stream go",
        ),
        (
            "blocking-query",
            1,
            f"fail selftest-timeout: {DEVICE_0}: park-and-go: {LATE}; a release let the parked stream go",
        ),
        (
            "stuck hang-in-query",
            3,
            f"stuck device-stuck: {DEVICE_0}: park-and-go: the stream stayed parked at round 1 after the rescue: "
            f"this device does not observe host stores; the test {LATE}",
        ),
    ],
)
def test_a_driver_that_hangs_is_told_with_the_check_that_it_hangs_in(
    hanging: dict[str, "subprocess.Popen[str]"], faults: str, exit_code: int, line: str
) -> None:
    told = finish(hanging[faults])
    assert (told.exit_code, told.line) == (exit_code, line)


def test_a_limit_of_weeks_is_one(standin: str) -> None:
    told = finish(start("--part", "device", "--time-limit", "3000000", LD_LIBRARY_PATH=standin))
    assert told.exit_code == 0


def test_what_was_found_before_the_hang_is_told_too(hanging: dict[str, "subprocess.Popen[str]"]) -> None:
    told = finish(hanging["found so far"])
    assert told.outcomes("device") == {"driver": "pass", "library": "pass"}
    assert told.outcomes("device 0") == {"identity": "pass", "set-up": "pass", "park-and-go": "fail"}
    assert [device["pciAddress"] for device in told.details["devices"]] == ["0000:a0:00.0"]


def test_a_driver_that_crashes_is_told_with_its_signal_and_last_words(standin: str) -> None:
    process = start(*LIMIT, LD_LIBRARY_PATH=standin, STANDIN_FAULTS="noisy crash-in-init")
    output, complaint = process.communicate(timeout=30)
    assert output.startswith(
        "fail selftest-crashed: device driver: the test's process ended with -6: standard error of the driver\n"
    )
    assert complaint == "standard output of the driver\nstandard error of the driver\n"


def test_what_a_driver_writes_never_stands_in_the_answer(standin: str) -> None:
    process = start("--part", "device", LD_LIBRARY_PATH=standin, STANDIN_FAULTS="noisy no-device")
    output, complaint = process.communicate(timeout=30)
    assert output.startswith('untested no-device: the driver sees no device\n{\n "verdict": "untested"')
    assert complaint == "standard output of the driver\nstandard error of the driver\n"


@pytest.mark.parametrize(
    ("how", "exit_code"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_whoever_ends_the_self_test_ends_all_of_it(standin: str, how: int, exit_code: int) -> None:
    """SIGTERM has a handler: as PID 1 of a container a process without one would ignore it."""
    process = start("--part", "device", LD_LIBRARY_PATH=standin, STANDIN_FAULTS="hang-in-init", STANDIN_LOG=os.devnull)
    until(lambda: bool(_children(process.pid)))
    (child,) = _children(process.pid)
    process.send_signal(how)
    process.communicate(timeout=30)
    assert process.returncode == exit_code
    until(lambda: not is_alive(child))


def test_at_its_limit_the_test_leaves_no_process_behind_and_nobody_waits_for_one(tmp_path: Path) -> None:
    """A peer that goes on would hold the output that the caller reads to its end."""
    printed = run_program(
        f"""
        import subprocess, time
        from hostflag_native.selftest.supervisor import Supervisor

        def test(tell):
            tell("running", ("host", "latency"))
            peer = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            open({str(tmp_path / "peer")!r}, "w").write(str(peer.pid))
            tell("device", {{}})
            time.sleep(600)

        supervisor = Supervisor(1.0, None, "")
        print([check.text for check in supervisor.run(test)], supervisor.journal.devices)
        """
    )
    assert printed == "['host latency: did not end in time for the limit of 1 s'] [{}]"
    peer = int((tmp_path / "peer").read_text())
    until(lambda: not is_alive(peer))


def test_a_fault_of_the_test_itself_is_a_failure_with_its_text() -> None:
    printed = run_program(
        """
        from hostflag_native.selftest.supervisor import Supervisor

        def test(tell):
            raise ZeroDivisionError("of its own")

        (check,) = Supervisor(20, None, "").run(test)
        print(check.outcome, check.fault, check.text)
        """
    )
    assert printed == (
        "fail selftest-crashed test start: the test's process ended with 1: ZeroDivisionError: of its own"
    )


def test_a_process_that_cannot_be_started_is_untested() -> None:
    printed = run_program(
        """
        import os
        from hostflag_native.__main__ import main

        def refused():
            raise BlockingIOError(11, "Resource temporarily unavailable")

        os.fork = refused
        exit_ = os._exit
        os._exit = lambda code: (print(code, flush=True), exit_(0))
        main(["selftest", "--termination-log", ""])
        """
    )
    line, exit_code = printed.splitlines()[0], printed.splitlines()[-1]
    text = "the test's process cannot be started: Resource temporarily unavailable"
    assert (line, exit_code) == (f"untested not-started: {text}", "2")


def test_a_self_test_that_keeps_no_limit_is_killed_and_reaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    monkeypatch.setattr(process_module, "program_command", lambda *_: [sys.executable, "-c", program])
    monkeypatch.setattr(process_module, "_GRACE_SECONDS", 1.0)
    verdict = selftest_module.run(time_limit_seconds=0.5)
    assert verdict.line == "fail selftest-timeout: the self-test did not end within 0.5 s and was killed"
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf", "soon"])
def test_a_limit_that_is_none_is_refused(limit: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hostflag_native", "selftest", f"--time-limit={limit}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.endswith(f"{limit!r} is no time limit: expected seconds above 0, as in 30\n")


@pytest.mark.parametrize("limit", [0, -1.0, float("nan"), float("inf")])
def test_the_function_refuses_a_limit_that_is_none(limit: float) -> None:
    with pytest.raises(ValueError, match=re.escape(f"the time limit is {limit} s, expected more than 0")):
        selftest_module.run(time_limit_seconds=limit)


def test_the_function_refuses_an_injection_that_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="'nope' is not a valid Injection"):
        selftest_module.run(inject="nope")


@pytest.mark.parametrize("words", [["--inject", "nope"], ["--part", "x"], ["--nope"]])
def test_a_wrong_command_line_is_no_verdict(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hostflag_native", "selftest", *words], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (64, "")


def _children(process_id: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process_id}/task/{process_id}/children").read_text().split()]
