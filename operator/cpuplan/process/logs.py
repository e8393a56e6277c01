"""A process's log: one line per record, a constant message with key=value."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable
from typing import TextIO

LEVELS = ("debug", "info", "warning", "error")


class LineFormatter(logging.Formatter):
    """`time LEVEL logger message`, in UTC; every record on one line, tracebacks only where they are wanted."""

    def __init__(self, *, with_tracebacks: bool) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S")
        self._with_tracebacks = with_tracebacks
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        """The line, and below it the traceback where those are wanted."""
        if self._with_tracebacks:
            return super().format(record)
        record.message = record.getMessage()
        record.asctime = self.formatTime(record, self.datefmt)
        error = record.exc_info[1] if record.exc_info else None
        cause = "" if error is None else f" error={str(error) or type(error).__name__!r}"
        return " ".join(f"{self.formatMessage(record)}{cause}".splitlines())


def configure_logging(level: str, *, quiet: Iterable[str] = (), stream: TextIO | None = None) -> logging.Handler:
    """Sends all logging of the process to `stream` (standard error), from `level` up; the handler that does.

    Args:
        level: one of LEVELS.
        quiet: loggers of packages that tell of every try; what comes of it is told by us. Their errors pass,
            their warnings only at debug.
    """
    is_debug = level == "debug"
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter(with_tracebacks=is_debug))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in quiet:
        logging.getLogger(name).setLevel(logging.WARNING if is_debug else logging.ERROR)
    return handler
