"""The agent's HTTP endpoints: /metrics, /healthz and /readyz."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from typing import Self

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

Trouble = Callable[[], str | None]
"""A probe: None when all is well, else the sentence that says what is not."""

REQUEST_SECONDS = 10.0
"""A client that says nothing for this long is hung up on."""


class AddressError(ValueError):
    """The address is not one, or cannot be listened on."""


class Endpoints:
    """Serves the endpoints from threads of its own; use as a context manager.

    Args:
        address: `HOST:PORT`, `[::]:PORT` for IPv6; port 0 takes any free one.

    Raises:
        AddressError: the address is malformed, in use, or not of this host.
    """

    def __init__(self, address: str, registry: CollectorRegistry, *, alive: Trouble, ready: Trouble) -> None:
        host, port = _parse(address)

        class Server(ThreadingHTTPServer):
            address_family = AF_INET6 if ":" in host else AF_INET
            daemon_threads = True

        try:
            self._server = Server((host, port), _handler(registry, alive, ready))
        except OSError as error:
            raise AddressError(
                f"metrics address {address} cannot be listened on: {error.strerror or error}; "
                "give a free HOST:PORT with --metrics-address"
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="endpoints", daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _parse(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise AddressError(f"metrics address {address!r} is not HOST:PORT, such as 0.0.0.0:9465 or [::]:9465")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _handler(registry: CollectorRegistry, alive: Trouble, ready: Trouble) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_SECONDS
        server_version = "cpuplan"
        sys_version = ""

        def do_GET(self) -> None:
            """Answers one request."""
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
            elif path in ("/healthz", "/readyz"):
                trouble = alive() if path == "/healthz" else ready()
                text = "ok" if trouble is None else trouble
                self._answer(200 if trouble is None else 503, f"{text}\n".encode(), "text/plain; charset=utf-8")
            else:
                self._answer(404, b"expected /metrics, /healthz or /readyz\n", "text/plain; charset=utf-8")

        def _answer(self, status: int, content: bytes, content_type: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Probes are not worth a line each."""

    return Handler
