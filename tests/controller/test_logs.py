"""The log: one line per record, kopf kept short."""

import io
import logging

import pytest

from cpuplan.controller.logs import configure_logging

pytestmark = pytest.mark.usefixtures("restored_logging")


def lines_of(level: str, name: str, record_level: int, text: str, *, error: Exception | None = None) -> list[str]:
    """What one record leaves in the log."""
    stream = io.StringIO()
    configure_logging(level, stream)
    logging.getLogger(name).log(record_level, text, exc_info=error)
    return stream.getvalue().splitlines()


def test_a_record_is_one_line_with_time_in_utc() -> None:
    (line,) = lines_of("info", "cpuplan.controller.index", logging.INFO, "index written keys=3")
    time, *rest = line.split(" ", 3)
    assert time.endswith("Z")
    assert rest == ["INFO", "cpuplan.controller.index", "index written keys=3"]


def test_records_with_several_lines_stay_on_one() -> None:
    assert len(lines_of("info", "cpuplan", logging.INFO, "a\nb")) == 1


def test_an_exception_is_its_text_and_a_traceback_only_at_debug() -> None:
    error = OSError("no route")
    (line,) = lines_of("info", "cpuplan", logging.ERROR, "failed", error=error)
    assert line.endswith("failed error='no route'")
    assert "OSError: no route" in lines_of("debug", "cpuplan", logging.ERROR, "failed", error=error)


def test_kopf_is_heard_from_warning_on_and_never_louder() -> None:
    assert lines_of("info", "kopf.activities.startup", logging.INFO, "started") == []
    (line,) = lines_of("info", "kopf._cogs.clients.api", logging.ERROR, "Request attempt #1/9 failed; will retry")
    assert " WARNING kopf._cogs.clients.api " in line


def test_debug_hears_everything_of_kopf() -> None:
    assert len(lines_of("debug", "kopf.objects", logging.DEBUG, "cycle finished")) == 1
