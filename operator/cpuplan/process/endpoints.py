"""What the kubelet and Prometheus ask for: /healthz, /readyz and /metrics, from threads of its own.

A process whose work hangs must still be able to say so.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from .address import Address

REQUEST_TIMEOUT_SECONDS = 10.0
"""A client that sends or takes nothing for this long is let go."""

STOP_SECONDS = 0.1
"""The server looks this often whether it is to stop, and the process's end waits for that look."""

Trouble = Callable[[], str]
"""Says what is wrong; empty when nothing is."""


Query = Mapping[str, str]
"""The parameters of a request by their names; of several of one name the last."""

Document = Callable[[Query], str]
"""Gives the JSON text for a request, empty while there is none yet.

Raises QueryError for what it cannot answer, and BusyError for what it cannot answer now.
"""

PLAIN_TEXT = "text/plain; charset=utf-8"

MOST_PARAMETERS = 16
"""In one query: no document has as many, and splitting more only costs time."""

_log = logging.getLogger(__name__)


class QueryError(ValueError):
    """The parameters are not what the document needs; the text says what it does."""


class BusyError(Exception):
    """Others are being answered, and asking again helps; the text says so."""


class ListenError(OSError):
    """The address is in use, or not of this host; the text is one sentence for people."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Who answers.

    Attributes:
        liveness: what a restart would cure.
        readiness: why the process does not do its work yet.
        documents: further paths, and who gives the JSON text for each.
    """

    registry: CollectorRegistry
    liveness: Trouble
    readiness: Trouble
    documents: Mapping[str, Document] = field(default_factory=dict)


@contextmanager
def served(address: Address, answers: Answers) -> Iterator[int]:
    """Serves the endpoints inside the block; the port (asked for or, for port 0, given).

    Raises:
        ListenError: the address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    server_class = type("Server", (ThreadingHTTPServer,), {"address_family": family, "daemon_threads": True})
    try:
        server = server_class((address.host, address.port), _handler(answers))
    except OSError as error:
        raise ListenError(
            f"cannot listen on {address} for metrics and probes: {error.strerror or error}; give a free HOST:PORT "
            "with --metrics-address"
        ) from error
    thread = threading.Thread(target=server.serve_forever, args=(STOP_SECONDS,), name="endpoints", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _document(document: Document, query: str) -> tuple[HTTPStatus, bytes, str]:
    """Status, body and content type of the answer with a document."""
    try:
        parameters = dict(parse_qsl(query, max_num_fields=MOST_PARAMETERS))
    except ValueError:
        return HTTPStatus.BAD_REQUEST, f"a query has at most {MOST_PARAMETERS} parameters\n".encode(), PLAIN_TEXT
    try:
        text = document(parameters)
    except QueryError as error:
        return HTTPStatus.BAD_REQUEST, f"{error}\n".encode(), PLAIN_TEXT
    except BusyError as error:
        return HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n".encode(), PLAIN_TEXT
    except Exception:  # noqa: BLE001 - the asker is told, and the process goes on
        _log.exception("a document cannot be made")
        why = b"the document cannot be made; the log of this process says why\n"
        return HTTPStatus.INTERNAL_SERVER_ERROR, why, PLAIN_TEXT
    if not text:
        return HTTPStatus.SERVICE_UNAVAILABLE, b"not there yet\n", PLAIN_TEXT
    return HTTPStatus.OK, f"{text}\n".encode(), "application/json"


def _handler(answers: Answers) -> type[BaseHTTPRequestHandler]:
    paths = ("/metrics", "/healthz", "/readyz", *answers.documents)

    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_TIMEOUT_SECONDS
        server_version = "cpuplan"
        sys_version = ""

        def do_GET(self) -> None:
            path, query = urlsplit(self.path).path, urlsplit(self.path).query
            if path == "/metrics":
                encoder, content_type = choose_encoder(self.headers.get("Accept", ""))
                self._send(HTTPStatus.OK, encoder(answers.registry), content_type)
            elif path in ("/healthz", "/readyz"):
                trouble = answers.liveness() if path == "/healthz" else answers.readiness()
                status = HTTPStatus.SERVICE_UNAVAILABLE if trouble else HTTPStatus.OK
                self._send(status, f"{trouble or 'ok'}\n".encode())
            elif path in answers.documents:
                self._send(*_document(answers.documents[path], query))
            else:
                self._send(HTTPStatus.NOT_FOUND, f"there are {', '.join(paths[:-1])} and {paths[-1]}\n".encode())

        def _send(self, status: HTTPStatus, body: bytes, content_type: str = PLAIN_TEXT) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Probes every few seconds are no news."""

    return Handler
