"""HTTP around the API server in memory: requests as values, answers as bytes, watches as streams."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from tests.fakeapi.objects import JsonObject


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]

    @property
    def is_watch(self) -> bool:
        """Whether it asks for a stream of changes."""
        return self.query.get("watch") in ("1", "true")


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered to a request."""

    code: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Watch:
    """An open watch; `broken` ends it in the middle of the stream."""

    namespace: str | None
    collection: str
    matches: Callable[[JsonObject], bool]
    outbox: list[bytes] = field(default_factory=list)
    ended: bool = False
    broken: bool = False

    def deliver(self, collection: str, kind: str, stored: JsonObject) -> None:
        """Queues a change, where it is one that the watch asks for."""
        namespace = stored["metadata"].get("namespace")
        if self.collection == collection and self.namespace in (None, namespace) and self.matches(stored):
            self.outbox.append(json.dumps({"type": kind, "object": stored}).encode() + b"\n")


class Answering(Protocol):
    """Who has the answers."""

    def answer(self, request: Request) -> Answer | Watch:
        """The answer to a request, or an open watch."""

    def next_lines(self, watch: Watch) -> bytes | None:
        """What to send next in a watch (waits for it); None at its end."""

    def forget_watch(self, watch: Watch) -> None:
        """Called when a watch's connection is gone."""


def handler_of(api: Answering) -> type[BaseHTTPRequestHandler]:
    """The handler that asks `api` for each answer."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60
        # Headers and body are two packets: without this the second waits 40 ms for the first one's acknowledgement.
        disable_nagle_algorithm = True

        def _handle(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("content-length") or 0)
            content = self.rfile.read(length)
            request = Request(
                self.command,
                parts.path,
                {key: values[-1] for key, values in parse_qs(parts.query).items()},
                json.loads(content) if content else None,
                {key.lower(): value for key, value in self.headers.items()},
            )
            answer = api.answer(request)
            if isinstance(answer, Watch):
                self._stream(answer)
                return
            # Who asked may have lost patience.
            with suppress(ConnectionError):
                self._send(answer)

        def _send(self, answer: Answer) -> None:
            self.send_response(answer.code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer.body)))
            for key, value in answer.headers.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle  # noqa: N815 - names of http.server

        def _stream(self, watch: Watch) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            # As a real API server, a watch that ends leaves its connection open for the next request.
            self.close_connection = True
            try:
                while (lines := api.next_lines(watch)) is not None:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(lines), lines))
                if not watch.broken:
                    self.wfile.write(b"0\r\n\r\n")
                    self.close_connection = False
            except OSError:
                pass
            finally:
                api.forget_watch(watch)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
