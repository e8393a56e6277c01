"""What the kubelet and Prometheus ask for: /healthz, /readyz and /metrics, from threads of its own.

A process whose work hangs must still be able to say so.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from .address import Address

REQUEST_TIMEOUT_SECONDS = 10.0
"""A client that sends or takes nothing for this long is let go."""

STOP_SECONDS = 0.1
"""The server looks this often whether it is to stop, and the process's end waits for that look."""

Trouble = Callable[[], str]
"""Says what is wrong; empty when nothing is."""


class ListenError(OSError):
    """The address is in use, or not of this host; the text is one sentence for people."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Who answers.

    Attributes:
        liveness: what a restart would cure.
        readiness: why the process does not do its work yet.
        documents: further paths, and who gives the JSON text for each (empty: there is none yet).
    """

    registry: CollectorRegistry
    liveness: Trouble
    readiness: Trouble
    documents: Mapping[str, Callable[[], str]] = field(default_factory=dict)


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


def _handler(answers: Answers) -> type[BaseHTTPRequestHandler]:
    paths = ("/metrics", "/healthz", "/readyz", *answers.documents)

    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_TIMEOUT_SECONDS
        server_version = "cpuplan"
        sys_version = ""

        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            if path == "/metrics":
                encoder, content_type = choose_encoder(self.headers.get("Accept", ""))
                self._send(HTTPStatus.OK, encoder(answers.registry), content_type)
            elif path in ("/healthz", "/readyz"):
                trouble = answers.liveness() if path == "/healthz" else answers.readiness()
                status = HTTPStatus.SERVICE_UNAVAILABLE if trouble else HTTPStatus.OK
                self._send(status, f"{trouble or 'ok'}\n".encode())
            elif path in answers.documents:
                if document := answers.documents[path]():
                    self._send(HTTPStatus.OK, f"{document}\n".encode(), "application/json")
                else:
                    self._send(HTTPStatus.SERVICE_UNAVAILABLE, b"not there yet\n")
            else:
                self._send(HTTPStatus.NOT_FOUND, f"there are {', '.join(paths[:-1])} and {paths[-1]}\n".encode())

        def _send(self, status: HTTPStatus, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Probes every few seconds are no news."""

    return Handler
