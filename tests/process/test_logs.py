"""The log: one line per record, in UTC, tracebacks where they are wanted."""

import io
import logging

import pytest

from cpuplan.process.logs import configure_logging

pytestmark = pytest.mark.usefixtures("restored_logging")


def lines_of(level: str, name: str, record_level: int, text: str, *, error: Exception | None = None) -> list[str]:
    """What one record leaves in the log."""
    stream = io.StringIO()
    configure_logging(level, quiet=["urllib3"], stream=stream)
    logging.getLogger(name).log(record_level, text, exc_info=error)
    return stream.getvalue().splitlines()


def test_a_record_is_one_line_with_time_in_utc() -> None:
    (line,) = lines_of("info", "cpuplan.controller.index", logging.INFO, "index written keys=3")
    time, *rest = line.split(" ", 3)
    assert time.endswith("Z")
    assert rest == ["INFO", "cpuplan.controller.index", "index written keys=3"]


def test_records_with_several_lines_stay_on_one() -> None:
    assert len(lines_of("info", "cpuplan", logging.INFO, "a\nb", error=OSError("c\nd"))) == 1


def test_an_exception_is_its_text_and_a_traceback_only_at_debug() -> None:
    error = OSError("no route")
    (line,) = lines_of("info", "cpuplan", logging.ERROR, "failed", error=error)
    assert line.endswith("failed error='no route'")
    assert "OSError: no route" in lines_of("debug", "cpuplan", logging.ERROR, "failed", error=error)


@pytest.mark.parametrize(("level", "count"), [("info", 0), ("debug", 1)])
def test_warnings_of_quiet_packages_pass_at_debug_only(level: str, count: int) -> None:
    assert len(lines_of(level, "urllib3.connectionpool", logging.WARNING, "Retrying")) == count


def test_errors_of_quiet_packages_pass() -> None:
    assert len(lines_of("info", "urllib3.connectionpool", logging.ERROR, "broken")) == 1


def test_records_below_the_level_are_left_out() -> None:
    assert lines_of("warning", "cpuplan", logging.INFO, "a detail") == []
