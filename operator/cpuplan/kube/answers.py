"""Reading what the API server answered: JSON objects, Status errors, watch events."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import urllib3
from urllib3.exceptions import HTTPError

from .errors import ApiUnreachableError, KubeError, UnexpectedAnswerError, status_error

JsonObject = dict[str, Any]

MAX_EVENT_BYTES = 4 << 20
"""Longest watch event that is read: more than twice etcd's limit for one object."""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One line of a watch: `kind` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    kind: str
    object: JsonObject

    @property
    def resource_version(self) -> str:
        """Where a later watch continues; empty when the object does not say."""
        return str(self.object.get("metadata", {}).get("resourceVersion", ""))


class WatchStream:
    """The events of one watch, in order; iterate once. Closing it from another thread ends the iteration."""

    def __init__(self, request: str, response: urllib3.BaseHTTPResponse) -> None:
        self._request = request
        self._response = response
        self._closed = threading.Event()

    def __iter__(self) -> Iterator[WatchEvent]:
        """Yields events until the server ends the stream.

        Raises:
            GoneError: the server no longer has the resource version (in-stream Status 410).
            ApiUnreachableError: silence for longer than the read timeout, or the connection broke.
            UnexpectedAnswerError: what came is not a watch event.
        """
        pending = b""
        try:
            while not self._closed.is_set():
                received = self._response.read1(1 << 16)
                if not received:
                    break
                *lines, pending = (pending + received).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield _watch_event(self._request, line)
                if len(pending) > MAX_EVENT_BYTES:
                    raise UnexpectedAnswerError(
                        f"{self._request}: a watch event is longer than {MAX_EVENT_BYTES} bytes"
                    )
        except (HTTPError, OSError, ValueError) as error:
            if isinstance(error, KubeError):
                raise
            if not self._closed.is_set():
                raise ApiUnreachableError(f"{self._request} broke off: {cause_text(error)}") from error
        finally:
            self._response.close()

    def close(self) -> None:
        """Ends the stream; a thread that waits in it wakes up."""
        self._closed.set()
        try:
            self._response.shutdown()
        except (ValueError, RuntimeError, OSError, HTTPError):
            # Already read to its end, or not a response that can be interrupted: the read timeout ends it.
            self._response.close()


def _watch_event(request: str, line: bytes) -> WatchEvent:
    event = json_object(request, line)
    kind, content = event.get("type"), event.get("object")
    if not isinstance(kind, str) or not isinstance(content, dict):
        raise UnexpectedAnswerError(f"{request}: no watch event: {_excerpt(line)}")
    if kind == "ERROR":
        code = content.get("code")
        raise status_error(
            request,
            code if isinstance(code, int) else 500,
            str(content.get("reason", "")),
            str(content.get("message", "")),
        )
    if not isinstance(content.get("metadata", {}), dict):
        raise UnexpectedAnswerError(f"{request}: an object without metadata: {_excerpt(line)}")
    return WatchEvent(kind, content)


def json_object(request: str, content: bytes) -> JsonObject:
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UnexpectedAnswerError(f"{request}: the answer is no JSON: {_excerpt(content)}") from error
    if not isinstance(parsed, dict):
        raise UnexpectedAnswerError(f"{request}: the answer is no object: {_excerpt(content)}")
    return parsed


def refusal(request: str, code: int, content: bytes) -> KubeError:
    """The error that a Status object (or a proxy's page) with an HTTP status of 300 and above stands for."""
    try:
        status = json.loads(content)
    except (ValueError, RecursionError):
        status = None
    if not isinstance(status, dict):
        return status_error(request, code, "", _excerpt(content))
    return status_error(request, code, str(status.get("reason", "")), str(status.get("message", "")))


def _excerpt(content: bytes) -> str:
    text = content[:120].decode(errors="replace").strip()
    return repr(text + "…" if len(content) > 120 else text)


def cause_text(error: BaseException) -> str:
    """The innermost reason of a urllib3 error, without its object addresses."""
    reason = getattr(error, "reason", None)
    if isinstance(reason, BaseException):
        return cause_text(reason)
    text = str(error)
    return text.rsplit(">: ", 1)[-1].rsplit("): ", 1)[-1] or type(error).__name__
