"""An API server of our own for tests: objects in memory, real HTTP on loopback, faults on request.

It knows any collection under /api/v1 and /apis/GROUP/VERSION: create, get, replace, merge-patch, delete, list
(with selectors, chunks and resourceVersion) and watch (with bookmarks and a history that can expire). What a
test wants to go wrong it asks for: `fail`, `expire_history`, `freeze_watches`, `send_in_watches`,
`break_watches`.
"""

import copy
import itertools
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

JsonObject = dict[str, Any]

_PATH = re.compile(
    r"/(?P<group>api/v1|apis/[^/]+/[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/[a-z]))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?(?P<status>/status)?"
)


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]


@dataclass(slots=True)
class _Fault:
    code: int
    times: int
    method: str | None
    path_part: str
    watch: bool | None
    headers: dict[str, str]
    body: bytes | None


@dataclass(slots=True, eq=False)
class _Watch:
    namespace: str | None
    collection: str
    matches: Callable[[JsonObject], bool]
    outbox: list[bytes] = field(default_factory=list)
    ended: bool = False
    broken: bool = False


class FakeApi:
    """The server; use as a context manager. Every method may be called while requests run."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._changed = threading.Condition()
        self._objects: dict[tuple[str, str | None, str], JsonObject] = {}
        self._history: list[tuple[int, str, str, JsonObject]] = []
        self._oldest_kept = 0
        self._versions = itertools.count(1000)
        self._version = next(self._versions)
        self._uids = itertools.count(1)
        self._faults: list[_Fault] = []
        self._watches: list[_Watch] = []
        self._frozen = False
        self._stopped = False
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Scheme, host and port."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def write_kubeconfig(self, path: Path) -> Path:
        """A kubeconfig file for this server, without credentials."""
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "fake",
                    "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
                    "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
                    "users": [{"name": "fake", "user": {}}],
                }
            )
        )
        return path

    # What a cluster does: objects come, change and go.

    def put(self, path: str, content: JsonObject) -> JsonObject:
        """Creates or replaces the object at `path`, as somebody else would; watches see it."""
        with self._changed:
            return copy.deepcopy(self._store(path, content))

    def patch(self, path: str, content: JsonObject) -> JsonObject:
        """Merge-patches the object at `path`, as somebody else would; watches see it."""
        with self._changed:
            return copy.deepcopy(self._store(path, _merged(self._objects[_key(path)], content)))

    def remove(self, path: str) -> None:
        """Deletes the object at `path`; watches see it."""
        with self._changed:
            self._remove(path)

    def object(self, path: str) -> JsonObject | None:
        """A copy of the object at `path`, None when there is none."""
        with self._changed:
            return copy.deepcopy(self._objects.get(_key(path)))

    # What goes wrong.

    def fail(
        self,
        code: int,
        *,
        times: int = 1,
        method: str | None = None,
        path_part: str = "",
        watch: bool | None = None,
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
    ) -> None:
        """The next `times` requests that match are answered with `code` (`body`: instead of a Status)."""
        with self._changed:
            self._faults.append(_Fault(code, times, method, path_part, watch, headers or {}, body))

    def expire_history(self) -> None:
        """Watches from any earlier resource version get 410 from now on."""
        with self._changed:
            self._version = next(self._versions)
            self._oldest_kept = self._version
            self._history.clear()

    def freeze_watches(self) -> None:
        """Open and new watches send nothing any more, like a dead connection; `thaw_watches` ends it."""
        with self._changed:
            self._frozen = True

    def thaw_watches(self) -> None:
        """Watches send again, also what they held back."""
        with self._changed:
            self._frozen = False
            self._changed.notify_all()

    def thaw_watches_of_the_future_only(self) -> None:
        """New watches send again; what the frozen ones held back is lost, as in a real gap."""
        with self._changed:
            self._frozen = False
            for watch in self._watches:
                watch.outbox.clear()
            self._changed.notify_all()

    def send_in_watches(self, line: bytes) -> None:
        """Sends `line` as it is in every open watch."""
        with self._changed:
            for watch in self._watches:
                watch.outbox.append(line + b"\n")
            self._changed.notify_all()

    def send_status_in_watches(self, code: int, reason: str) -> None:
        """Sends an ERROR event in every open watch."""
        status = {"kind": "Status", "code": code, "reason": reason, "message": f"test: {reason}"}
        self.send_in_watches(json.dumps({"type": "ERROR", "object": status}).encode())

    def end_watches(self, *, broken: bool = False) -> None:
        """Ends every open watch, properly or in the middle of the stream."""
        with self._changed:
            for watch in self._watches:
                watch.ended, watch.broken = True, broken
            self._changed.notify_all()

    # What a test waits for and asks.

    def wait_until(self, condition: Callable[[], bool], *, limit_seconds: float = 10.0) -> None:
        """Waits for something that requests bring about; AssertionError after the limit."""
        with self._changed:
            assert self._changed.wait_for(condition, timeout=limit_seconds), "waited in vain"

    def wait_for_watches(self, count: int = 1, *, limit_seconds: float = 10.0) -> None:
        """Waits until exactly `count` watches are open."""
        self.wait_until(lambda: len(self._watches) == count, limit_seconds=limit_seconds)

    def requests_of(self, method: str, path_part: str = "") -> list[Request]:
        """The requests so far with this method whose path contains `path_part`."""
        with self._changed:
            return [r for r in self.requests if r.method == method and path_part in r.path]

    # The server's side.

    def answer(self, request: Request) -> tuple[int, dict[str, str], bytes] | _Watch:
        """The answer to a request: status, headers and body, or an open watch."""
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
            is_watch = request.query.get("watch") in ("1", "true")
            fault = next((f for f in self._faults if _applies(f, request, is_watch)), None)
            if fault is not None:
                fault.times -= 1
                body = _status(fault.code, "Test") if fault.body is None else fault.body
                return fault.code, fault.headers, body
            if is_watch:
                return self._open_watch(request)
            return self._serve(request)

    def next_lines(self, watch: _Watch) -> bytes | None:
        """What to send next in a watch (waits for it); None at its end."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or watch.ended or (bool(watch.outbox) and not self._frozen))
            if watch.outbox and not self._frozen:
                lines = b"".join(watch.outbox)
                watch.outbox.clear()
                return lines
            return None

    def forget_watch(self, watch: _Watch) -> None:
        """Called when a watch's connection is gone."""
        with self._changed:
            self._watches.remove(watch)
            self._changed.notify_all()

    def _serve(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        match = _PATH.fullmatch(request.path)
        if match is None:
            return 404, {}, _status(404, "NotFound")
        if match["name"] is None:
            if request.method == "POST":
                return self._create(request)
            return self._list(request, match["namespace"])
        stored = self._objects.get(_key(request.path))
        if stored is None:
            return 404, {}, _status(404, "NotFound")
        if request.method == "DELETE":
            self._remove(request.path)
        elif request.method in ("PATCH", "PUT"):
            return self._write(request, stored)
        return 200, {}, json.dumps(stored).encode()

    def _write(self, request: Request, stored: JsonObject) -> tuple[int, dict[str, str], bytes]:
        if request.method == "PATCH":
            if request.headers.get("content-type") != "application/merge-patch+json":
                return 415, {}, _status(415, "UnsupportedMediaType")
            return 200, {}, json.dumps(self._store(request.path, _merged(stored, request.body))).encode()
        wanted = request.body.get("metadata", {}).get("resourceVersion")
        if wanted not in (None, stored["metadata"]["resourceVersion"]):
            return 409, {}, _status(409, "Conflict")
        return 200, {}, json.dumps(self._store(request.path, request.body)).encode()

    def _create(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        metadata = request.body.setdefault("metadata", {})
        if "name" not in metadata:
            metadata["name"] = f"{metadata.get('generateName', '')}{next(self._uids)}"
        path = f"{request.path}/{metadata['name']}"
        if _key(path) in self._objects:
            return 409, {}, _status(409, "AlreadyExists")
        return 201, {}, json.dumps(self._store(path, request.body)).encode()

    def _list(self, request: Request, namespace: str | None) -> tuple[int, dict[str, str], bytes]:
        matches = _selector(request.query)
        found = [
            stored
            for (collection, stored_namespace, _), stored in sorted(self._objects.items(), key=str)
            if collection == _collection(request.path) and namespace in (None, stored_namespace) and matches(stored)
        ]
        start = int(request.query.get("continue", "0"))
        limit = int(request.query.get("limit", "0")) or len(found)
        metadata: JsonObject = {"resourceVersion": str(self._version)}
        if start + limit < len(found):
            metadata["continue"] = str(start + limit)
        answer = {"kind": "List", "metadata": metadata, "items": found[start : start + limit]}
        return 200, {}, json.dumps(answer).encode()

    def _open_watch(self, request: Request) -> tuple[int, dict[str, str], bytes] | _Watch:
        match = _PATH.fullmatch(request.path)
        if match is None:
            return 404, {}, _status(404, "NotFound")
        since = int(request.query.get("resourceVersion", "0"))
        if since < self._oldest_kept:
            return 410, {}, _status(410, "Expired")
        watch = _Watch(match["namespace"], _collection(request.path), _selector(request.query))
        for version, collection, kind, stored in self._history:
            if version > since:
                _deliver(watch, collection, kind, stored)
        self._watches.append(watch)
        self._changed.notify_all()
        return watch

    def send_bookmarks(self) -> None:
        """Sends every open watch a bookmark with the newest resource version."""
        bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self._version)}}}
        self.send_in_watches(json.dumps(bookmark).encode())

    def _store(self, path: str, content: JsonObject) -> JsonObject:
        key = _key(path)
        before = self._objects.get(key)
        stored = copy.deepcopy(content)
        self._version = next(self._versions)
        metadata = stored.setdefault("metadata", {})
        metadata.setdefault("name", key[2])
        if key[1] is not None:
            metadata.setdefault("namespace", key[1])
        metadata.setdefault("uid", f"00000000-0000-4000-8000-{next(self._uids):012d}")
        metadata["resourceVersion"] = str(self._version)
        self._objects[key] = stored
        self._announce(key[0], "ADDED" if before is None else "MODIFIED", stored)
        return stored

    def _remove(self, path: str) -> None:
        stored = copy.deepcopy(self._objects.pop(_key(path)))
        self._version = next(self._versions)
        stored["metadata"]["resourceVersion"] = str(self._version)
        self._announce(_key(path)[0], "DELETED", stored)

    def _announce(self, collection: str, kind: str, stored: JsonObject) -> None:
        content = copy.deepcopy(stored)
        self._history.append((self._version, collection, kind, content))
        for watch in self._watches:
            _deliver(watch, collection, kind, content)
        self._changed.notify_all()


def _deliver(watch: _Watch, collection: str, kind: str, stored: JsonObject) -> None:
    namespace = stored["metadata"].get("namespace")
    if watch.collection == collection and watch.namespace in (None, namespace) and watch.matches(stored):
        watch.outbox.append(json.dumps({"type": kind, "object": stored}).encode() + b"\n")


def _applies(fault: _Fault, request: Request, is_watch: bool) -> bool:
    return (
        fault.times > 0
        and fault.method in (None, request.method)
        and fault.path_part in request.path
        and fault.watch in (None, is_watch)
    )


def _collection(path: str) -> str:
    match = _PATH.fullmatch(path)
    assert match is not None, path
    return f"{match['group']}/{match['plural']}"


def _key(path: str) -> tuple[str, str | None, str]:
    match = _PATH.fullmatch(path)
    assert match is not None, path
    assert match["name"] is not None, path
    return _collection(path), match["namespace"], match["name"]


def _selector(query: dict[str, str]) -> Callable[[JsonObject], bool]:
    fields = dict(part.split("=", 1) for part in query.get("fieldSelector", "").split(",") if part)
    labels = [part.partition("=") for part in query.get("labelSelector", "").split(",") if part]

    def matches(stored: JsonObject) -> bool:
        own = stored.get("metadata", {}).get("labels", {})
        return all(str(_field(stored, path)) == value for path, value in fields.items()) and all(
            key in own and (not sign or own[key] == value) for key, sign, value in labels
        )

    return matches


def _field(stored: JsonObject, path: str) -> Any:
    value: Any = stored
    for part in path.split("."):
        value = value.get(part, "")
    return value


def _merged(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result


def _status(code: int, reason: str) -> bytes:
    status = {"kind": "Status", "status": "Failure", "code": code, "reason": reason}
    return json.dumps({**status, "message": f"test: {reason}"}).encode()


def _handler(api: FakeApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60

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
            if isinstance(answer, _Watch):
                self._stream(answer)
                return
            code, headers, body = answer
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            for key, value in headers.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle  # noqa: N815 - names of http.server

        def _stream(self, watch: _Watch) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                self.wfile.flush()
                while (lines := api.next_lines(watch)) is not None:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(lines), lines))
                    self.wfile.flush()
                if not watch.broken:
                    self.wfile.write(b"0\r\n\r\n")
            except OSError:
                pass
            finally:
                api.forget_watch(watch)
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    return Handler
