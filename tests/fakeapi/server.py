"""The API server in memory: what a test does to it and asks of it, and its answers (longer than most: one object)."""

from __future__ import annotations

import copy
import itertools
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Self

from tests.fakeapi.discovery import discovered
from tests.fakeapi.objects import PATH, JsonObject, Key, collection_of, key_of, merged, selector_of, status_body
from tests.fakeapi.serving import Answer, Request, Watch, handler_of


@dataclass(slots=True)
class _Fault:
    code: int
    times: int
    method: str | None
    path_part: str
    watch: bool | None
    headers: dict[str, str]
    body: bytes | None


class FakeApi:
    """The server; use as a context manager. Every method may be called while requests run."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._changed = threading.Condition()
        self._objects: dict[Key, JsonObject] = {}
        self._history: list[tuple[int, str, str, JsonObject]] = []
        self._oldest_kept = 0
        self._versions = itertools.count(1000)
        self._version = next(self._versions)
        self._uids = itertools.count(1)
        self._faults: list[_Fault] = []
        self._watches: list[Watch] = []
        self._pages: dict[str, Callable[[Request], Answer]] = {}
        self._frozen = False
        self._stopped = False
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

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
            return copy.deepcopy(self._store(path, merged(self._objects[key_of(path)], content)))

    def remove(self, path: str) -> None:
        """Deletes the object at `path`; watches see it."""
        with self._changed:
            self._remove(path)

    def object(self, path: str) -> JsonObject | None:
        """A copy of the object at `path`, None when there is none."""
        with self._changed:
            return copy.deepcopy(self._objects.get(key_of(path)))

    def serve_page(self, pod_and_port: str, page: str, answer: Callable[[Request], Answer]) -> None:
        """Lets a pod answer on a page through the API server's proxy; `pod_and_port` is such as PATH-OF-POD:9465."""
        with self._changed:
            self._pages[f"{pod_and_port}/proxy/{page}"] = answer

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

    def recover(self) -> None:
        """No request fails any more."""
        with self._changed:
            self._faults.clear()

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

    def answer(self, request: Request) -> Answer | Watch:
        """The answer to a request: status, headers and body, or an open watch."""
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
            fault = next((f for f in self._faults if _applies(f, request)), None)
            if fault is not None:
                fault.times -= 1
                body = status_body(fault.code, "Test") if fault.body is None else fault.body
                return Answer(fault.code, body, fault.headers)
            page = self._pages.get(request.path)
            if page is None:
                return self._open_watch(request) if request.is_watch else discovered(request) or self._serve(request)
        # The pod may take its time, and ask this server meanwhile.
        return page(request)

    def next_lines(self, watch: Watch) -> bytes | None:
        """What to send next in a watch (waits for it); None at its end."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or watch.ended or (bool(watch.outbox) and not self._frozen))
            if watch.outbox and not self._frozen:
                lines = b"".join(watch.outbox)
                watch.outbox.clear()
                return lines
            return None

    def forget_watch(self, watch: Watch) -> None:
        """Called when a watch's connection is gone."""
        with self._changed:
            self._watches.remove(watch)
            self._changed.notify_all()

    def _serve(self, request: Request) -> Answer:
        match = PATH.fullmatch(request.path)
        if match is None:
            return _refusal(404, "NotFound")
        if match["name"] is None:
            if request.method == "POST":
                return self._create(request)
            return self._list(request, match["namespace"])
        stored = self._objects.get(key_of(request.path))
        if stored is None:
            return _refusal(404, "NotFound")
        if request.method in ("PATCH", "PUT", "DELETE"):
            return self._write(request, stored)
        return Answer(200, json.dumps(stored).encode())

    def _write(self, request: Request, stored: JsonObject) -> Answer:
        if request.method == "DELETE":
            expected = (request.body or {}).get("preconditions", {}).get("resourceVersion")
            if expected not in (None, stored["metadata"]["resourceVersion"]):
                return _refusal(409, "Conflict")
            self._remove(request.path)
            return Answer(200, json.dumps(stored).encode())
        if request.method == "PATCH":
            if request.headers.get("content-type") != "application/merge-patch+json":
                return _refusal(415, "UnsupportedMediaType")
            return Answer(200, json.dumps(self._store(request.path, merged(stored, request.body))).encode())
        wanted = request.body.get("metadata", {}).get("resourceVersion")
        if wanted not in (None, stored["metadata"]["resourceVersion"]):
            return _refusal(409, "Conflict")
        return Answer(200, json.dumps(self._store(request.path, request.body)).encode())

    def _create(self, request: Request) -> Answer:
        metadata = request.body.setdefault("metadata", {})
        if "name" not in metadata:
            metadata["name"] = f"{metadata.get('generateName', '')}{next(self._uids)}"
        path = f"{request.path}/{metadata['name']}"
        if key_of(path) in self._objects:
            return _refusal(409, "AlreadyExists")
        return Answer(201, json.dumps(self._store(path, request.body)).encode())

    def _list(self, request: Request, namespace: str | None) -> Answer:
        matches = selector_of(request.query)
        found = [
            stored
            for (collection, stored_namespace, _), stored in sorted(self._objects.items(), key=str)
            if collection == collection_of(request.path) and namespace in (None, stored_namespace) and matches(stored)
        ]
        start = int(request.query.get("continue", "0"))
        limit = int(request.query.get("limit", "0")) or len(found)
        metadata: JsonObject = {"resourceVersion": str(self._version)}
        if start + limit < len(found):
            metadata["continue"] = str(start + limit)
        answer = {"kind": "List", "metadata": metadata, "items": found[start : start + limit]}
        return Answer(200, json.dumps(answer).encode())

    def _open_watch(self, request: Request) -> Answer | Watch:
        match = PATH.fullmatch(request.path)
        if match is None:
            return _refusal(404, "NotFound")
        since = int(request.query.get("resourceVersion", "0"))
        if since < self._oldest_kept:
            return _refusal(410, "Expired")
        watch = Watch(match["namespace"], collection_of(request.path), selector_of(request.query))
        for version, collection, kind, stored in self._history:
            if version > since:
                watch.deliver(collection, kind, stored)
        self._watches.append(watch)
        self._changed.notify_all()
        return watch

    def send_bookmarks(self) -> None:
        """Sends every open watch a bookmark with the newest resource version."""
        bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self._version)}}}
        self.send_in_watches(json.dumps(bookmark).encode())

    def _store(self, path: str, content: JsonObject) -> JsonObject:
        key = key_of(path)
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
        stored = copy.deepcopy(self._objects.pop(key_of(path)))
        self._version = next(self._versions)
        stored["metadata"]["resourceVersion"] = str(self._version)
        self._announce(key_of(path)[0], "DELETED", stored)

    def _announce(self, collection: str, kind: str, stored: JsonObject) -> None:
        content = copy.deepcopy(stored)
        self._history.append((self._version, collection, kind, content))
        for watch in self._watches:
            watch.deliver(collection, kind, content)
        self._changed.notify_all()


def _applies(fault: _Fault, request: Request) -> bool:
    return (
        fault.times > 0
        and fault.method in (None, request.method)
        and fault.path_part in request.path
        and fault.watch in (None, request.is_watch)
    )


def _refusal(code: int, reason: str) -> Answer:
    return Answer(code, status_body(code, reason))
