"""The self-test as a process of its own, for a caller that must not be left with a parked stream or a hung driver."""

import contextlib
import json
import math
import subprocess
from typing import Final

from hostflag_native.process_command import program_command
from hostflag_native.selftest.rounds import Injection
from hostflag_native.selftest.verdict import Outcome, Verdict

HOST_SECONDS: Final = 30.0
"""Default limit of the host part, in s: it takes about 1 s; a throttled pod on a full node needs several."""

DEVICE_SECONDS: Final = 60.0
"""Default limit with the device part, in s: making a context takes up to some seconds for each device."""

_GRACE_SECONDS: Final = 5.0
"""How much longer than its own limit the process may take before it is killed, in s."""

_KILL_SECONDS: Final = 2.0
"""How long a killed process is waited for, in s: one that a driver holds in the kernel may never end."""

_BY_EXIT_CODE: Final = {outcome.exit_code: outcome for outcome in Outcome}


def run(
    *,
    host_part: bool = True,
    device_part: bool = False,
    time_limit_seconds: float | None = None,
    require_gpu: bool = False,
    inject: str = "",
    lib_path: str = "",
) -> Verdict:
    """Runs the self-test and returns its verdict; never raises for what the test finds.

    Args:
        host_part: test the host: library, page, threads, processes.
        device_part: test each visible CUDA device.
        time_limit_seconds: the test ends by then; None: 30 s, with the device part 60 s.
        require_gpu: no driver or no device is a failure, not "untested".
        inject: "no-store", "late" or "wrong-word" breaks the hand-off on purpose; the verdict must not be a pass then.
        lib_path: the library to test; empty: the one that an engine would load.

    Raises:
        ValueError: neither part is asked for, the limit is not above 0, or there is no such injection.
    """
    default_seconds = DEVICE_SECONDS if device_part else HOST_SECONDS
    limit_seconds = checked_limit(default_seconds if time_limit_seconds is None else time_limit_seconds)
    command = program_command("selftest", "--part", _part(host_part, device_part), f"--time-limit={limit_seconds}")
    command += ["--termination-log", "", "--lib", lib_path]
    command += ["--require-gpu"] if require_gpu else []
    command += ["--inject", Injection(inject)] if inject else []
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",  # a driver's library writes to standard error in whatever encoding it likes
    )
    try:
        output, complaint = process.communicate(timeout=limit_seconds + _GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        _kill(process)
        text = f"fail selftest-timeout: the self-test did not end within {limit_seconds:g} s and was killed"
        return Verdict(Outcome.FAIL, "selftest-timeout", text, {})
    return read_verdict(process.returncode, output, complaint)


def checked_limit(seconds: float) -> float:
    """The time limit, in s.

    Raises:
        ValueError: it is not above 0, infinite or no number.
    """
    if not 0 < seconds < math.inf:
        raise ValueError(f"the time limit is {seconds} s, expected more than 0 and less than infinity")
    return seconds


def _kill(process: "subprocess.Popen[str]") -> None:
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=_KILL_SECONDS)


def read_verdict(exit_code: int, output: str, complaint: str) -> Verdict:
    """The verdict that a self-test process printed: a line, then a JSON object; its exit code decides."""
    outcome = _BY_EXIT_CODE.get(exit_code)
    line, _, rest = output.strip().partition("\n")
    try:
        details = json.loads(rest)
    except ValueError:
        details = None
    if outcome is None or not isinstance(details, dict):
        last = (complaint.strip().splitlines() or ["it said nothing"])[-1]
        text = f"fail selftest-crashed: the self-test ended with exit code {exit_code}: {last}"
        return Verdict(Outcome.FAIL, "selftest-crashed", text, {})
    return Verdict(outcome, str(details.get("fault", "")), line, details)


def _part(host_part: bool, device_part: bool) -> str:
    if not host_part and not device_part:
        raise ValueError("neither the host part nor the device part is asked for")
    if host_part and device_part:
        return "all"
    return "host" if host_part else "device"
