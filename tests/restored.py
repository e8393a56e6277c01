"""What a test may turn upside down, put back afterwards."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

LOGGERS = ("", "kopf", "asyncio", "urllib3", "kubernetes", "aiohttp", "grpc")
"""Those whose level the product sets."""


@contextmanager
def restored_logging() -> Iterator[None]:
    """The logging of the process is afterwards what it was before."""
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    handlers = logging.getLogger().handlers[:]
    try:
        yield
    finally:
        logging.getLogger().handlers[:] = handlers
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
