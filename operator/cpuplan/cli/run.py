"""`cpuplan run -- CMD`: starts a command with pools sized to the plan, in the place of this process.

The command replaces this process (exec): signals, exit code and being PID 1 are its own.
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path
from typing import NoReturn

from ..inprocess.environment import thread_variables
from ..inprocess.launchers import POOL_CPUS_VARIABLE
from ..model.cpulist import format_cpu_list
from ..planning.budget import counted
from .errors import FAILED, WRONG_USAGE, CliError
from .inforce import (
    PlanInForce,
    add_plan_arguments,
    add_size_arguments,
    chosen_threads,
    plan_in_force,
    say,
    warn,
)
from .selftest import Outcome, report_of, start_selftest
from .sigterm import ended_by_sigterm, held_back
from .terminationlog import TERMINATION_LOG, TerminationMessage

REPORT, REQUIRED = "report", "required"

# As shells report them (POSIX, 2.8.2 Exit Status for Commands).
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_STUCK = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `cpuplan run`."""
    parser.usage = "%(prog)s [options] -- COMMAND [ARGUMENT ...]"
    parser.add_argument(
        "--selftest",
        nargs="?",
        choices=(REPORT, REQUIRED),
        const=REPORT,
        help="test the devices first; required: a test that fails or sticks keeps the command from starting",
    )
    parser.add_argument(
        "--termination-log",
        type=Path,
        default=TERMINATION_LOG,
        metavar="FILE",
        help="where the verdict goes if a required test keeps the command from starting",
    )
    parser.add_argument(
        "--pin",
        action="store_true",
        help="keep the command off every CPU that the plan pins; its step threads can still be pinned there",
    )
    parser.add_argument("--quiet", action="store_true", help="say nothing of the plan on standard error")
    add_size_arguments(parser)
    add_plan_arguments(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")


def run(namespace: argparse.Namespace) -> int:
    """Starts the command in this process's place; returns only if it must not or cannot start."""
    command = namespace.command[1:] if namespace.command[:1] == ["--"] else namespace.command
    if not any(command[:1]):
        raise CliError("no command to run: give one after --, as in cpuplan run -- python3 server.py", WRONG_USAGE)
    with ended_by_sigterm():
        if namespace.selftest is not None:
            _test_devices(namespace)
        in_force = plan_in_force(namespace)
    thread_count = chosen_threads(namespace, in_force)
    chosen = thread_variables(thread_count, os.environ)
    if not namespace.quiet:
        say(_sentence(in_force, thread_count, len(chosen)))
        warn(in_force)
    if namespace.pin:
        _keep_off_pinned_cpus(in_force)
    os.environ.update(chosen)
    _replace_this_process(command)


def _test_devices(namespace: argparse.Namespace) -> None:
    """Runs the device part of the hostflag self-test; only a required one that fails or sticks ends the start."""
    selftest = None
    try:
        with held_back():
            selftest = start_selftest(host_part=False, device_part=True)
        report = report_of(selftest)
    finally:
        if selftest is not None:
            selftest.end()
    say(f"self-test: {report.line}")
    if namespace.selftest == REQUIRED and report.outcome in (Outcome.FAIL, Outcome.STUCK):
        # Of a command that is started the termination log is the command's own.
        TerminationMessage.of(report, namespace.plan_dir).write(namespace.termination_log, "run")
        raise CliError(
            f"the required self-test did not pass ({report.line}); the command is not started",
            _STUCK if report.outcome is Outcome.STUCK else FAILED,
        )


def _sentence(in_force: PlanInForce, thread_count: int, variable_count: int) -> str:
    plan = in_force.plan
    pinned = format_cpu_list(plan.pinned) or "none"
    return (
        f"{counted(thread_count, 'thread')} per pool ({counted(variable_count, 'variable')} set) "
        f"from {in_force.origin}: {counted(plan.usable, 'usable CPU')}, pinned {pinned}"
    )


def _keep_off_pinned_cpus(in_force: PlanInForce) -> None:
    """Narrows the affinity that the command inherits to the CPUs that pools may float on."""
    if not in_force.plan.pinned:
        say(f"--pin changes nothing: {in_force.plan.why}")
        return
    cpus = format_cpu_list(in_force.pool_cpus)
    try:
        os.sched_setaffinity(0, in_force.pool_cpus)
    except OSError as error:
        say(f"--pin changes nothing: CPUs {cpus} were refused ({error.strerror}); see cpuplan verify")
    else:
        os.environ[POOL_CPUS_VARIABLE] = cpus


def _replace_this_process(command: list[str]) -> NoReturn:
    """Runs the command with the signals as they were before Python's start.

    Python ignores SIGPIPE and SIGXFSZ, and an ignored signal stays ignored over exec.
    """
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606 - the very purpose of this command
    except FileNotFoundError as error:
        from shutil import which  # noqa: PLC0415 - it loads compressors that a start which works does not need

        # A command that is there lacks its interpreter.
        missing = "its interpreter (the first line of the script)" if which(command[0]) else "it"
        raise CliError(f"cannot run {command[0]}: {missing} was not found", _NOT_FOUND) from error
    except OSError as error:
        raise CliError(f"cannot run {command[0]}: {error.strerror}", _NOT_EXECUTABLE) from error
