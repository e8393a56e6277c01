"""What the kubelet and Prometheus are answered."""

import http.client
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus

import pytest
from prometheus_client import CollectorRegistry, Counter

from cpuplan.process.address import Address
from cpuplan.process.endpoints import Answers, BusyError, ListenError, Query, QueryError, served


@dataclass(slots=True)
class Process:
    """What a process says of itself, and where it says so."""

    port: int = 0
    hangs: str = ""
    unready: str = ""
    document: str = ""
    asked: dict[str, str] = field(default_factory=dict)

    def make_document(self, query: Query) -> str:
        """The document, for a query that has no parameter `wrong`."""
        self.asked = dict(query)
        if "wrong" in query:
            raise QueryError("give what is right")
        if "often" in query:
            raise BusyError("busy with others")
        return self.document if "hard" not in query else str(1 // 0)

    def ask(self, path: str, *, accept: str = "*/*") -> tuple[int, str]:
        """Status and text of one GET."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path, headers={"Accept": accept})
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
    documents = {"/things": told.make_document}
    answers = Answers(registry, lambda: told.hangs, lambda: told.unready, documents)
    with served(Address("127.0.0.1", 0), answers) as port:
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
    assert process.ask("/") == (HTTPStatus.NOT_FOUND, "there are /metrics, /healthz, /readyz and /things\n")


def test_a_document_is_served_once_there_is_one(process: Process) -> None:
    process.document = ""
    assert process.ask("/things") == (HTTPStatus.SERVICE_UNAVAILABLE, "not there yet\n")
    process.document = '{"things": 1}'
    assert process.ask("/things?x=1") == (HTTPStatus.OK, '{"things": 1}\n')


def test_a_document_is_told_the_parameters_of_the_query(process: Process) -> None:
    process.document = "1"
    assert process.ask("/things?pod=llm-0&namespace=a%2Fb&pod=llm-1&empty=")[0] == HTTPStatus.OK
    assert process.asked == {"pod": "llm-1", "namespace": "a/b"}


def test_a_query_that_a_document_cannot_answer_is_told_why(process: Process) -> None:
    assert process.ask("/things?wrong=1") == (HTTPStatus.BAD_REQUEST, "give what is right\n")
    many = "&".join(f"p{number}=1" for number in range(17))
    assert process.ask(f"/things?{many}") == (HTTPStatus.BAD_REQUEST, "a query has at most 16 parameters\n")


def test_a_document_that_cannot_be_made_now_is_told_so(process: Process) -> None:
    assert process.ask("/things?often=1") == (HTTPStatus.SERVICE_UNAVAILABLE, "busy with others\n")


def test_a_document_that_cannot_be_made_is_an_answer_too(process: Process, caplog: pytest.LogCaptureFixture) -> None:
    status, text = process.ask("/things?hard=1")
    assert (status, text) == (
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "the document cannot be made; the log of this process says why\n",
    )
    assert "ZeroDivisionError" in caplog.text


def test_a_scraper_may_ask_for_openmetrics(process: Process) -> None:
    assert process.ask("/metrics", accept="application/openmetrics-text; version=1.0.0")[1].endswith("# EOF\n")


def test_an_address_in_use_is_a_sentence(process: Process) -> None:
    sentence = f"cannot listen on 127.0.0.1:{process.port} for metrics and probes: Address already in use; give a free"
    answers = Answers(CollectorRegistry(), str, str)
    with pytest.raises(ListenError, match=sentence), served(Address("127.0.0.1", process.port), answers):
        pass


def test_an_address_of_another_host_is_a_sentence() -> None:
    answers = Answers(CollectorRegistry(), str, str)
    with (
        pytest.raises(ListenError, match=r"cannot listen on 192\.0\.2\.1:0 for metrics and probes: Cannot assign"),
        served(Address("192.0.2.1", 0), answers),
    ):
        pass
