"""A process's flags, each with an environment variable behind it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from typing import Any

from .address import Address, parse_address
from .logs import LEVELS

EXIT_MISCONFIGURED = 2
"""Nothing will change until somebody changes settings, mounts, credentials or rights."""

ENVIRONMENT_PREFIX = "CPUPLAN_"

LONGEST_SECONDS = 86_400
"""A day: a longer time between two actions of a process is a slip of the pen."""


class Flags:
    """Adds flags to a parser; `--some-flag` falls back to CPUPLAN_SOME_FLAG.

    Args:
        environment: None for that of this process.
    """

    def __init__(self, parser: argparse.ArgumentParser, environment: Mapping[str, str] | None = None) -> None:
        self._parser = parser
        self._environment = os.environ if environment is None else environment

    def add(self, flag: str, default: str, text: str, *, fallback: str = "", **options: Any) -> None:
        """Adds one flag.

        Args:
            flag: without its dashes.
            text: what it is, for --help; variables and default are added.
            fallback: a further variable, for what a pod's own manifest usually tells.
            options: of `ArgumentParser.add_argument`.
        """
        variable = ENVIRONMENT_PREFIX + flag.upper().replace("-", "_")
        value = self._environment.get(variable) or self._environment.get(fallback) or default
        names = f"{variable} or {fallback}" if fallback else variable
        shown = f"default {default}" if default else "no default"
        self._parser.add_argument(f"--{flag}", default=value, help=f"{text} ({names}; {shown})", **options)

    def add_process_flags(self, *, metrics_address: str) -> None:
        """Adds those that every process has: where it listens, how it reaches the API server, how much it logs.

        Args:
            metrics_address: where it listens by default.
        """
        self.add("metrics-address", metrics_address, "where /metrics, /healthz and /readyz are served", type=address)
        self.add("kubeconfig", "", "kubeconfig file; empty for the pod's service account")
        self.add("log-level", "info", f"one of {', '.join(LEVELS)}", type=log_level)


def address(text: str) -> Address:
    """A flag's address.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    try:
        return parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def log_level(text: str) -> str:
    """A flag's log level.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    if text not in LEVELS:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(LEVELS)}")
    return text


def seconds_from(least: float) -> Callable[[str], float]:
    """The reader of a flag in seconds, at least `least` and at most a day.

    The reader raises argparse.ArgumentTypeError for anything else.
    """

    def seconds(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= LONGEST_SECONDS:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from {least:g} to {LONGEST_SECONDS}")
        return value

    return seconds
