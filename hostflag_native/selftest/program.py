"""The self-test's program: its arguments, its time limit, and how its verdict is told."""

import argparse
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from hostflag_native.library import LIB_PATH_VARIABLE
from hostflag_native.selftest.device_part import run_device_part
from hostflag_native.selftest.environment import CgroupFiles, describe_environment, throttling
from hostflag_native.selftest.host_checks import run_host_checks
from hostflag_native.selftest.process import DEVICE_SECONDS, HOST_SECONDS, checked_limit
from hostflag_native.selftest.process_checks import run_process_checks
from hostflag_native.selftest.rounds import Injection
from hostflag_native.selftest.shared_round import SharedRound
from hostflag_native.selftest.supervisor import Supervisor
from hostflag_native.selftest.told import Tell
from hostflag_native.selftest.verdict import Check, Checklist, Outcome, Verdict

TERMINATION_LOG: Final = "/dev/termination-log"


@dataclass(frozen=True, slots=True)
class SelfTestRequest:
    """What is asked of the self-test."""

    host_part: bool
    device_part: bool
    require_gpu: bool
    time_limit_seconds: float
    injection: Injection
    lib_path: str
    termination_log: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `selftest`."""
    parser.add_argument(
        "--part",
        choices=("host", "device", "all"),
        default="all",
        help="what to test (default: the host and each device)",
    )
    parser.add_argument(
        "--require-gpu", action="store_true", help="no driver or no device is a failure (exit 1, not 2)"
    )
    parser.add_argument(
        "--time-limit",
        type=_limit,
        metavar="SECONDS",
        help=f"end by then (default: {HOST_SECONDS:g}, with a device part {DEVICE_SECONDS:g})",
    )
    parser.add_argument(
        "--inject",
        choices=[str(injection) for injection in Injection if injection],
        default="",
        help="break the hand-off on purpose, to see that the test finds it",
    )
    parser.add_argument(
        "--lib",
        default=os.environ.get(LIB_PATH_VARIABLE, ""),
        metavar="FILE",
        help=f"the library (${LIB_PATH_VARIABLE})",
    )
    parser.add_argument(
        "--termination-log",
        default=TERMINATION_LOG,
        metavar="FILE",
        help="where the verdict goes too, if the file exists; empty: nowhere",
    )


def _limit(text: str) -> float:
    try:
        return checked_limit(float(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no time limit: expected seconds above 0, as in 30") from error


def request_of(namespace: argparse.Namespace) -> SelfTestRequest:
    """The parsed arguments as a value."""
    device_part = namespace.part != "host"
    return SelfTestRequest(
        host_part=namespace.part != "device",
        device_part=device_part,
        require_gpu=namespace.require_gpu,
        time_limit_seconds=namespace.time_limit or (DEVICE_SECONDS if device_part else HOST_SECONDS),
        injection=Injection(namespace.inject),
        lib_path=namespace.lib,
        termination_log=namespace.termination_log,
    )


class SelfTestProgram:
    """One run: the checks in a supervised child, the verdict here."""

    def __init__(self, request: SelfTestRequest) -> None:
        self._request = request
        self._started = time.monotonic()
        self._files = CgroupFiles()
        self._throttled_before = throttling(self._files)
        self._round = SharedRound() if request.device_part else None

    def run(self) -> NoReturn:
        """Makes the checks, tells the verdict and ends the process with its exit code."""
        supervisor = Supervisor(self._request.time_limit_seconds, self._round, self._request.lib_path)
        try:
            checks = supervisor.run(self._make_checks)
        except OSError as error:
            # A limit on processes or memory says nothing about host or device.
            text = f"the test's process cannot be started: {error.strerror}"
            checks = (Check("test", "start", Outcome.UNTESTED, "not-started", text),)
        verdict = self._verdict(checks, supervisor.journal.devices)
        write_termination_log(self._request.termination_log, verdict)
        try:
            print(verdict.line)  # noqa: T201  the program's answer
            print(json.dumps(verdict.details, indent=1), flush=True)  # noqa: T201
            os.write(2, supervisor.noise)
        except OSError:
            pass  # nobody reads that any more; exit code and termination log still tell
        finally:
            os._exit(verdict.exit_code)  # an ordinary exit would try again to write what could not be

    def _make_checks(self, tell: Tell) -> None:
        request = self._request
        checklist = Checklist(tell)
        has_library = request.host_part and run_host_checks(checklist, request.lib_path, request.injection)
        # An injected fault shows in the checks of one process: the others would only delay its verdict.
        if has_library and request.injection is Injection.NONE:
            run_process_checks(checklist, request.lib_path)
        if self._round is not None:
            run_device_part(
                checklist,
                tell,
                self._round,
                lib_path=request.lib_path,
                injection=request.injection,
                require_gpu=request.require_gpu,
            )

    def _verdict(self, checks: tuple[Check, ...], devices: list[dict[str, Any]]) -> Verdict:
        environment = describe_environment(self._files)
        environment["cpuStatDuringTest"] = {
            name: value - self._throttled_before.get(name, 0) for name, value in environment["cpuStat"].items()
        }
        return Verdict.of(checks, self._started, environment, devices)


def write_termination_log(path: str, verdict: Verdict) -> None:
    """Writes line and compact JSON where the kubelet put a file for it; elsewhere standard output has to do."""
    if not path or not Path(path).exists():
        return
    try:
        Path(path).write_text(verdict.termination_message(), encoding="utf-8")
    except OSError as error:
        print(f"selftest: {path} cannot be written: {error.strerror}", file=sys.stderr)  # noqa: T201
