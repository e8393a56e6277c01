"""The subcommand `cpuplan operator`."""

import argparse
import logging

from ..process.flags import EXIT_MISCONFIGURED
from .settings import add_arguments, settings_from

__all__ = ["add_arguments", "run"]

LOG = logging.getLogger(__name__)


def run(arguments: argparse.Namespace) -> int:
    """Runs the operator until it is stopped; the exit code."""
    from .process import run_operator  # noqa: PLC0415 - kopf is loaded by those who run, not by --help

    try:
        settings = settings_from(arguments)
    except ValueError as error:
        LOG.error("%s", error)
        return EXIT_MISCONFIGURED
    return run_operator(settings)
