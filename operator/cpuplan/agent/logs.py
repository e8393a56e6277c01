"""The agent's log: one line per record, a constant message with key=value."""

from __future__ import annotations

import logging
import sys
import time
from typing import TextIO

LEVELS = ("debug", "info", "warning", "error")


class LineFormatter(logging.Formatter):
    """`time LEVEL logger message`, in UTC; every record on one line, tracebacks only where they are wanted."""

    def __init__(self, *, with_tracebacks: bool) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S")
        self._with_tracebacks = with_tracebacks
        self.converter = time.gmtime

    def formatException(self, ei: object) -> str:  # noqa: N802 - the name of logging.Formatter
        """The traceback, or nothing."""
        return super().formatException(ei) if self._with_tracebacks else ""  # type: ignore[arg-type]

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        record.exc_text = None
        text = super().format(record)
        return text if self._with_tracebacks else " ".join(text.splitlines())


def configure_logging(level: str, stream: TextIO | None = None) -> None:
    """Sends all logging of the process to `stream` (standard error), from `level` up."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter(with_tracebacks=level == "debug"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("urllib3", "kubernetes", "grpc"):
        logging.getLogger(name).setLevel(logging.ERROR)
