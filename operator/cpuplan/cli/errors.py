"""What ends a command early: one sentence and an exit code."""

from __future__ import annotations

FAILED = 1
"""Exit code of a command that could not do what it was asked."""

WRONG_USAGE = 2
"""Exit code of a command line that cannot be understood, and of a missing package."""


class CliError(Exception):
    """One sentence for standard error, and the exit code of the process."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code
