"""The command `cpuplan`: finds the subcommand, imports only that, and turns errors into one sentence.

Every subcommand is a module with `add_arguments(parser)` and `run(namespace) -> exit code`.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePath
from typing import NoReturn, Protocol, cast

from .. import __version__
from ..model.errors import CpuPlanError, HostReadError
from .errors import FAILED, WRONG_USAGE, CliError
from .streams import drop_output, prepare_streams, tell

_PACKAGE = "cpuplan"

_OUTPUT_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells report it (128 + SIGINT)."""

_OWN_FLAGS = frozenset({"-h", "--help", "--version"})
"""Flags that stand without a command."""


class Subcommand(Protocol):
    """What a subcommand's module offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Adds the subcommand's arguments."""

    def run(self, namespace: argparse.Namespace) -> int:
        """Does the work; returns the exit code."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A subcommand: the module below `cpuplan`, one line of help, and the extra whose packages it needs."""

    module: str
    help: str
    extra: str | None = None


SUBCOMMANDS: dict[str, _Entry] = {
    "show": _Entry("cli.show", "topology, devices, mask, quota and usable CPUs of this machine or a tree"),
    "plan": _Entry("cli.plan", "the plan of a deployment on this machine or any sysfs tree, with reasons"),
    "explain": _Entry("cli.explain", "why a pod's plan is what it is", "agent"),
    "env": _Entry("cli.env", "thread-count variables, also as arguments of vLLM, SGLang, torchrun, taskset"),
    "run": _Entry("cli.run", "run a command with thread-count variables from the plan"),
    "verify": _Entry("cli.verify", "compare the plan with where the threads may run"),
    "audit": _Entry("cli.audit", "who uses GPUs with remote CPUs or too large pools, planned or not", "agent"),
    "init": _Entry("cli.init", "the init container: wait for the plan, test the host, report"),
    "agent": _Entry("agent.command", "the node's process: plans its pods", "agent"),
    "operator": _Entry("controller.command", "the cluster's process: index, events, findings", "operator"),
}


class _MissingPackageError(CliError):
    """A package of an extra is not installed; the text goes on from the command's name."""


class _Parser(argparse.ArgumentParser):
    """Reports a wrong command line as one sentence."""

    def error(self, message: str) -> NoReturn:
        if message.endswith("expected one argument"):
            # A value such as -,- looks like an option.
            message += " (one that begins with - is written after an =)"
        raise CliError(f"{message}; see {self.prog} --help", WRONG_USAGE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code (argparse's own exits for --help and --version aside)."""
    prepare_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    prog = _program_name()
    try:
        return _dispatch(prog, words)
    except _MissingPackageError as error:
        return _complain(f"{_with_subcommand(prog, words)} {error}", error.exit_code)
    except CliError as error:
        return _complain(f"{_with_subcommand(prog, words)}: {error}", error.exit_code)
    except (CpuPlanError, HostReadError) as error:
        return _complain(f"{_with_subcommand(prog, words)}: {error}", FAILED)
    except OSError as error:
        drop_output()
        # The reader (head, less) has left: it knows.
        is_known = isinstance(error, BrokenPipeError)
        return FAILED if is_known else _complain(f"{_with_subcommand(prog, words)}: {_named(error)}", FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED


def _dispatch(prog: str, words: list[str]) -> int:
    name = words[0] if words else ""
    parser = _Parser(prog=prog, description="Plans which CPUs an inference server's threads use.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"cpuplan {__version__}")
    subparsers = parser.add_subparsers(dest="subcommand", metavar="COMMAND", required=True, parser_class=_Parser)
    with _missing_packages_named(name):
        chosen: Subcommand | None = None
        for entry_name, entry in SUBCOMMANDS.items():
            subparser = subparsers.add_parser(entry_name, help=entry.help, description=entry.help, allow_abbrev=False)
            if entry_name == name:
                chosen = cast("Subcommand", importlib.import_module(f"{_PACKAGE}.{entry.module}"))
                chosen.add_arguments(subparser)
        if name.startswith("-") and name not in _OWN_FLAGS:
            parser.error(f"unrecognized argument {name}: a command comes first")
        namespace, unknown = parser.parse_known_args(words)
        if chosen is None:
            parser.error(f"the command has to come first, got {words[0]}")
        if unknown:
            subparsers.choices[name].error(f"unrecognized arguments: {' '.join(unknown)}")
        exit_code = chosen.run(namespace)
    sys.stdout.flush()
    return exit_code


@contextmanager
def _missing_packages_named(name: str) -> Iterator[None]:
    """Turns the lack of an extra's package into the sentence that says which extra has it."""
    try:
        yield
    except ModuleNotFoundError as error:
        entry = SUBCOMMANDS.get(name)
        missing = (error.name or "").split(".", maxsplit=1)[0]
        if entry is None or entry.extra is None or missing == _PACKAGE:
            raise
        raise _MissingPackageError(
            f"needs the package {missing}, which is not installed: pip install 'cpuplan[{entry.extra}]'", WRONG_USAGE
        ) from error


def _program_name() -> str:
    """`kubectl cpuplan` where kubectl started it as its plugin, else `cpuplan`."""
    return "kubectl cpuplan" if PurePath(sys.argv[0]).name == "kubectl-cpuplan" else "cpuplan"


def _with_subcommand(prog: str, words: list[str]) -> str:
    return f"{prog} {words[0]}" if words and words[0] in SUBCOMMANDS else prog


def _complain(sentence: str, exit_code: int) -> int:
    tell(" ".join(sentence.split()))
    return exit_code


def _named(error: OSError) -> str:
    """The error with what it happened to; commands write no file but standard output, and reading names its file."""
    if error.filename is None and error.errno in _OUTPUT_ERRORS:
        return f"the output cannot be written: {error.strerror}"
    return str(error)
