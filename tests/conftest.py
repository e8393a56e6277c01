"""What all tests share: the machines, the folder of real cases, and `--require-all`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from cpuplan.host.root import HostRoot
from tests.cases import HOW_TO_ENABLE, cases_folder, memory_folder, unpack_machine
from tests.machines import write_machine

pytest_plugins = ["tests.cluster.fixture", "tests.fakeapi.fixture"]

REQUIRE_ALL = "--require-all"

# How long an example takes depends on what else the machine does; the time limit of a test bounds them all.
settings.register_profile("without-deadline", deadline=None)
settings.load_profile("without-deadline")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--require-all`."""
    parser.addoption(
        REQUIRE_ALL,
        action="store_true",
        help="a test whose prerequisite is missing fails instead of being skipped; tests marked gpu aside, "
        "and tests marked cases where CPUPLAN_CASES is not set",
    )


def pytest_configure() -> None:
    """Refuses a CPUPLAN_CASES that is no folder of cases before anything runs."""
    cases_folder()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turns a skip into a failure under `--require-all`."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and item.config.getoption(REQUIRE_ALL):
        is_elsewhere = item.get_closest_marker("cases") is not None and cases_folder() is None
        if item.get_closest_marker("gpu") is None and not is_elsewhere:
            report.outcome = "failed"
            report.longrepr = f"{REQUIRE_ALL}: {item.nodeid} was skipped: {_skip_reason(report.longrepr)}"
    return report


def _skip_reason(longrepr: object) -> str:
    return longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turns a module that skips itself into a failure under `--require-all`."""
    report = yield
    if report.outcome == "skipped" and collector.config.getoption(REQUIRE_ALL):
        report.outcome = "failed"
        report.longrepr = f"{REQUIRE_ALL}: {collector.nodeid} was skipped: {_skip_reason(report.longrepr)}"
    return report


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of real cases; skips without one."""
    folder = cases_folder()
    if folder is None:
        pytest.skip(HOW_TO_ENABLE)
    return folder


TreeOf = Callable[[str], HostRoot]
"""From a machine's name to its trees, written once in a session; tests only read them."""


def _once_per_name(base: Path, write: Callable[[str, Path], object]) -> TreeOf:
    def tree(name: str) -> HostRoot:
        folder = base / name
        if not folder.exists():
            write(name, folder)
        return HostRoot.at(folder)

    return tree


@pytest.fixture(scope="session")
def _trees() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def own_machine(_trees: Path) -> TreeOf:
    """The trees of a machine that tests/machines describes."""
    return _once_per_name(_trees / "own", write_machine)


@pytest.fixture(scope="session")
def machine(_trees: Path) -> TreeOf:
    """The trees of a real machine of CPUPLAN_CASES; skips without them."""
    return _once_per_name(_trees / "real", unpack_machine)
