"""The log: kopf kept short."""

import io
import logging

import pytest

from cpuplan.controller.logs import configure_logging

pytestmark = pytest.mark.usefixtures("restored_logging")


def lines_of(level: str, name: str, record_level: int, text: str) -> list[str]:
    """What one record leaves in the log."""
    stream = io.StringIO()
    configure_logging(level, stream)
    logging.getLogger(name).log(record_level, text)
    return stream.getvalue().splitlines()


def test_kopf_is_heard_from_warning_on_and_never_louder() -> None:
    assert lines_of("info", "kopf.activities.startup", logging.INFO, "started") == []
    (line,) = lines_of("info", "kopf._cogs.clients.api", logging.ERROR, "Request attempt #1/9 failed; will retry")
    assert " WARNING kopf._cogs.clients.api " in line


def test_debug_hears_everything_of_kopf() -> None:
    assert len(lines_of("debug", "kopf.objects", logging.DEBUG, "cycle finished")) == 1
