"""What the kubelet and Prometheus are answered."""

import http.client
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus

import pytest
from prometheus_client import CollectorRegistry, Counter

from cpuplan.controller.endpoints import Address, Answers, parse_address, served


@dataclass(slots=True)
class Process:
    """What a process says of itself, and where it says so."""

    port: int = 0
    hangs: str = ""
    unready: str = ""

    def ask(self, path: str) -> tuple[int, str]:
        """Status and text of one GET."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def served_process() -> Iterator[Process]:
    """A process with one counter, its endpoints served."""
    registry = CollectorRegistry()
    Counter("things", "Things.", registry=registry).inc()
    told = Process()
    with served(Address("127.0.0.1", 0), Answers(registry, lambda: told.hangs, lambda: told.unready)) as port:
        told.port = port
        yield told


@pytest.fixture
def process(served_process: Process) -> Process:
    """That process, sound."""
    served_process.hangs = served_process.unready = ""
    return served_process


def test_a_sound_process_is_alive_and_ready(process: Process) -> None:
    assert (process.ask("/healthz"), process.ask("/readyz")) == ((HTTPStatus.OK, "ok\n"), (HTTPStatus.OK, "ok\n"))


def test_a_process_that_is_not_ready_yet_is_alive(process: Process) -> None:
    process.unready = "pods are being listed"
    assert process.ask("/readyz") == (HTTPStatus.SERVICE_UNAVAILABLE, "pods are being listed\n")
    assert process.ask("/healthz")[0] == HTTPStatus.OK


def test_a_process_that_hangs_is_not_alive_and_says_why(process: Process) -> None:
    process.hangs = "no step for 301 s"
    assert process.ask("/healthz") == (HTTPStatus.SERVICE_UNAVAILABLE, "no step for 301 s\n")


def test_metrics_are_served_as_text(process: Process) -> None:
    status, text = process.ask("/metrics?x=1")
    assert status == HTTPStatus.OK
    assert "things_total 1.0" in text


def test_other_paths_are_named_as_unknown(process: Process) -> None:
    assert process.ask("/") == (HTTPStatus.NOT_FOUND, "there are /metrics, /healthz and /readyz\n")


def test_a_taken_address_is_named(process: Process) -> None:
    answers = Answers(CollectorRegistry(), str, str)
    with (
        pytest.raises(
            OSError, match=f"cannot listen on 127.0.0.1:{process.port} for metrics and probes: Address already"
        ),
        served(Address("127.0.0.1", process.port), answers),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "address"),
    [("0.0.0.0:9466", Address("0.0.0.0", 9466)), (":9466", Address("", 9466)), ("[::1]:0", Address("::1", 0))],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize("text", ["", "9466", "host:", "host:http", "host:70000", "host:-1", "host:²"])
def test_what_is_no_address_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an address: expected HOST:PORT such as 0\.0\.0\.0:9466"):
        parse_address(text)
