"""The operator's log: one line per record, key=value, kopf kept short."""

import logging
import sys
import time
from typing import TextIO

LEVELS = ("debug", "info", "warning", "error")


class LineFormatter(logging.Formatter):
    """`time level logger message`, in UTC; every record on one line, tracebacks only at debug."""

    def __init__(self, *, with_tracebacks: bool) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S")
        self._with_tracebacks = with_tracebacks
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        """The line, and below it the traceback where those are wanted."""
        if self._with_tracebacks:
            return super().format(record)
        line = self.formatMessage(self._ready(record)).replace("\n", " ")
        error = record.exc_info[1] if record.exc_info else None
        return line if error is None else f"{line} error={str(error) or type(error).__name__!r}"

    def _ready(self, record: logging.LogRecord) -> logging.LogRecord:
        record.message = record.getMessage()
        record.asctime = self.formatTime(record, self.datefmt)
        return record


def configure_logging(level: str, stream: TextIO | None = None) -> None:
    """Sends all logging of the process to `stream` (standard error), from `level` up.

    kopf tells at info what it does for every resource, and at error what it then retries by itself: below
    debug only its warnings are passed on, as warnings. urllib3 warns of each try; what comes of it is told by us.
    """
    is_debug = level == "debug"
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter(with_tracebacks=is_debug))
    handler.addFilter(_as_warning_from_kopf)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("kopf").setLevel(logging.DEBUG if is_debug else logging.WARNING)
    for name in ("asyncio", "urllib3", "kubernetes", "aiohttp"):
        logging.getLogger(name).setLevel(logging.WARNING if is_debug else logging.ERROR)


def _as_warning_from_kopf(record: logging.LogRecord) -> bool:
    if record.name.startswith("kopf") and record.levelno > logging.WARNING:
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True
