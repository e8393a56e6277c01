"""The subcommand `cpuplan agent`."""

from __future__ import annotations

import argparse
import logging
import os

from ..process.flags import EXIT_MISCONFIGURED
from ..process.logs import configure_logging
from .settings import add_arguments, settings_from

__all__ = ["add_arguments", "run"]

QUIET = ("urllib3", "kubernetes", "grpc")

_log = logging.getLogger(__name__)


def run(arguments: argparse.Namespace) -> int:
    """Runs the agent until it is stopped; the exit code."""
    # gRPC's core writes lines of its own form at info; it reads this when it is loaded.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from .process import run_agent  # noqa: PLC0415 - gRPC is loaded by those who run, not by --help

    configure_logging(arguments.log_level, quiet=QUIET)
    try:
        settings = settings_from(arguments)
    except ValueError as error:
        _log.error("%s", error)
        return EXIT_MISCONFIGURED
    return run_agent(settings)
