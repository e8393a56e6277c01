"""The hostflag self-test as a process of its own, and what it said.

It runs apart because a device may leave it with a parked stream: then only the end of its process helps.
hostflag_native stands alone and may be missing; nothing of it is imported here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from typing import Any, Final

HOST_PART_SECONDS = 30
WITH_DEVICE_SECONDS = 60
"""Limits that the self-test is told to keep: an init container must not hold its pod back for minutes."""

GRACE_SECONDS = 5.0
"""How much longer it is waited for, until one that hangs is killed."""

_KILL_SECONDS = 2.0
"""How long a killed self-test is waited for; a process that the driver holds may never end."""

NOT_INSTALLED: Final = "not-installed"
NOT_STARTED: Final = "not-started"
TIMED_OUT: Final = "selftest-timeout"
CRASHED: Final = "selftest-crashed"
SKIPPED: Final = "skipped"


class Outcome(StrEnum):
    """What a self-test came to."""

    PASS = "pass"  # noqa: S105 - a verdict
    FAIL = "fail"
    UNTESTED = "untested"
    STUCK = "stuck"


_BY_EXIT_CODE = {0: Outcome.PASS, 1: Outcome.FAIL, 2: Outcome.UNTESTED, 3: Outcome.STUCK}


@dataclass(frozen=True, slots=True)
class SelfTestReport:
    """The outcome of a self-test.

    Attributes:
        outcome: pass, fail, untested or stuck.
        fault: a stable code, empty without a fault.
        line: the verdict line for people.
        details: the self-test's JSON object, empty where it gave none.
    """

    outcome: Outcome
    fault: str
    line: str
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def device_uuids(self) -> list[str]:
        """The UUIDs of the devices that the device part tested."""
        devices = self.details.get("devices")
        found = [device.get("uuid") for device in devices or () if isinstance(device, dict)]
        return [uuid for uuid in found if isinstance(uuid, str)]


class SelfTest:
    """A self-test that runs beside this process."""

    def __init__(self, command: Sequence[str], limit_seconds: float) -> None:
        self._limit_seconds = limit_seconds
        self._started = time.monotonic()
        self._process: subprocess.Popen[str] | None = None
        self._refusal = ""
        try:
            # errors: a driver's library writes to standard error in whatever encoding it likes.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            # A limit on processes or memory says nothing about the device, and must not keep a pod from starting.
            self._refusal = error.strerror or str(error)

    def report(self) -> SelfTestReport:
        """Waits for the end and says what it came to; one that runs longer than its limit is killed."""
        if self._process is None:
            line = f"untested {NOT_STARTED}: the self-test could not be started: {self._refusal}"
            return SelfTestReport(Outcome.UNTESTED, NOT_STARTED, line)
        left = max(0.0, self._limit_seconds - (time.monotonic() - self._started))
        try:
            output, complaint = self._process.communicate(timeout=left)
        except subprocess.TimeoutExpired:
            _kill(self._process)
            line = f"fail {TIMED_OUT}: the self-test did not end within {self._limit_seconds:g} s"
            return SelfTestReport(Outcome.FAIL, TIMED_OUT, line)
        return read_report(self._process.returncode, output, complaint)

    def end(self) -> None:
        """Kills a self-test that still runs: whoever started it does not outlive it."""
        if self._process is not None and self._process.poll() is None:
            _kill(self._process)


def _kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    try:
        process.communicate(timeout=_KILL_SECONDS)
    except subprocess.TimeoutExpired:
        return


def start_selftest(*, host_part: bool = True, device_part: bool = False) -> SelfTest | None:
    """The running self-test of the parts asked for; None where it is not installed."""
    if find_spec("hostflag_native") is None:
        return None
    part = "all" if host_part and device_part else "device" if device_part else "host"
    limit_seconds = WITH_DEVICE_SECONDS if device_part else HOST_PART_SECONDS
    # -P: nothing of that name in the working directory is taken for it.
    command = [sys.executable, "-P", "-m", "hostflag_native", "selftest", "--part", part]
    # It would write the termination log itself; here that is the caller's.
    command += ["--time-limit", str(limit_seconds), "--termination-log", ""]
    return SelfTest(command, limit_seconds + GRACE_SECONDS)


def read_report(exit_code: int, output: str, complaint: str) -> SelfTestReport:
    """What a self-test said: its exit code decides, its first line is the verdict, a JSON object follows."""
    outcome = _BY_EXIT_CODE.get(exit_code)
    line, _, rest = output.strip().partition("\n")
    try:
        details = json.loads(rest)
    except (ValueError, RecursionError):
        details = None
    if outcome is None or not isinstance(details, dict):
        last = (complaint.strip().splitlines() or ["it said nothing"])[-1]
        line = f"fail {CRASHED}: the self-test ended with exit code {exit_code}: {last}"
        return SelfTestReport(Outcome.FAIL, CRASHED, line)
    return SelfTestReport(outcome, str(details.get("fault") or ""), line, details)


def report_of(selftest: SelfTest | None) -> SelfTestReport:
    """The report of a self-test that was started; untested where it is not installed."""
    if selftest is not None:
        return selftest.report()
    line = f"untested {NOT_INSTALLED}: hostflag_native, a part of the package cpuplan, is not in this image"
    return SelfTestReport(Outcome.UNTESTED, NOT_INSTALLED, line)


def skipped() -> SelfTestReport:
    """The report where the self-test was not asked for."""
    return SelfTestReport(Outcome.UNTESTED, SKIPPED, f"untested {SKIPPED}: the self-test was not asked for")
