"""The operator's log: that of every process, with kopf kept short."""

import logging
from typing import TextIO

from ..process import logs

QUIET = ("asyncio", "urllib3", "kubernetes", "aiohttp")


def configure_logging(level: str, stream: TextIO | None = None) -> None:
    """Sends all logging of the process to `stream` (standard error), from `level` up.

    kopf tells at info what it does for every resource, and at error what it then retries by itself: below
    debug only its warnings are passed on, as warnings.
    """
    handler = logs.configure_logging(level, quiet=QUIET, stream=stream)
    handler.addFilter(_as_warning_from_kopf)
    logging.getLogger("kopf").setLevel(logging.DEBUG if level == "debug" else logging.WARNING)


def _as_warning_from_kopf(record: logging.LogRecord) -> bool:
    if record.name.startswith("kopf") and record.levelno > logging.WARNING:
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True
