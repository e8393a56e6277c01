"""Requests to the API server as raw JSON, with time limits and retries of our own.

Times out, always: a client without a read timeout hangs for ever on a dead connection. Retries what is safe
to repeat, with jittered back-off. Errors are those of `cpuplan.kube.errors`.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from urllib.parse import urlencode

import urllib3
from urllib3.exceptions import HTTPError

from .. import __version__
from .answers import JsonObject, WatchStream, cause_text, json_object, refusal
from .connection import Connection
from .errors import ApiUnreachableError, UnexpectedAnswerError

CONNECT_TIMEOUT_SECONDS = 5.0
"""A node that cannot open a connection in this time is cut off; retries and back-off take over."""

READ_TIMEOUT_SECONDS = 20.0
"""Longest silence within an answer; lists of thousands of pods start to answer within a few."""

CHUNK_SIZE = 250
"""Objects per request of a long list: a few megabytes of pods of ten to twenty kilobytes."""

_RETRIED_METHODS = frozenset({"GET", "PUT", "PATCH", "DELETE"})
"""Repeating these does no harm (PUT carries a resourceVersion); a POST is repeated only if it never arrived."""


def default_retries() -> urllib3.Retry:
    """Three more tries: at once, then after 0.4 to 0.9 and 0.8 to 1.3 seconds; Retry-After up to 10 s."""
    return urllib3.Retry(
        total=3,
        redirect=0,
        allowed_methods=_RETRIED_METHODS,
        status_forcelist=(429, 500, 502, 503, 504),
        backoff_factor=0.2,
        backoff_jitter=0.5,
        backoff_max=5,
        retry_after_max=10,
        raise_on_status=False,
        raise_on_redirect=False,
    )


@dataclass(frozen=True, slots=True)
class ObjectList:
    """The objects of one list request, and the resource version at which a watch continues."""

    items: tuple[JsonObject, ...]
    resource_version: str


class KubeClient:
    """The verbs cpuplan uses. Safe to call from several threads."""

    def __init__(
        self, connection: Connection, *, user_agent: str = "cpuplan", retries: urllib3.Retry | None = None
    ) -> None:
        self._connection = connection
        self._retries = default_retries() if retries is None else retries
        self._headers = {"User-Agent": f"{user_agent}/{__version__}", "Accept": "application/json"}

    @property
    def base_url(self) -> str:
        """Where the API server is, for messages."""
        return self._connection.base_url

    def get(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        read_timeout_seconds: float = READ_TIMEOUT_SECONDS,
    ) -> JsonObject:
        """The object (or list) at `path`; `read_timeout_seconds` is the longest silence."""
        return self._exchange("GET", path, query=query, read_timeout_seconds=read_timeout_seconds)

    def create(self, path: str, body: JsonObject) -> JsonObject:
        """The object as created in the collection at `path`."""
        return self._exchange("POST", path, body=body)

    def replace(self, path: str, body: JsonObject) -> JsonObject:
        """The object as replaced; ConflictError when it changed since `body`'s resourceVersion."""
        return self._exchange("PUT", path, body=body)

    def merge_patch(self, path: str, body: JsonObject) -> JsonObject:
        """The object as patched (RFC 7386: null removes a key)."""
        return self._exchange("PATCH", path, body=body, content_type="application/merge-patch+json")

    def delete(self, path: str, *, resource_version: str | None = None) -> JsonObject:
        """The object or Status that the server answers with; ConflictError when it changed since `resource_version`."""
        if resource_version is None:
            return self._exchange("DELETE", path)
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"resourceVersion": resource_version}}
        return self._exchange("DELETE", path, body=options)

    def list_objects(
        self,
        path: str,
        *,
        field_selector: str = "",
        label_selector: str = "",
        not_older_than: str | None = None,
        chunk_size: int = CHUNK_SIZE,
    ) -> ObjectList:
        """All objects of a collection.

        Args:
            not_older_than: ask the API server's watch cache, in one answer and without a read of etcd, for the
                state at this resource version or any later one; "0" for what it has, which may be a little old.
                None: the newest, in chunks of `chunk_size`.

        Raises:
            GoneError: the list took longer than the server keeps its continuation (five minutes).
            ApiStatusError: with code 504: the server's cache has not come to that version within three seconds.
        """
        query = {"fieldSelector": field_selector, "labelSelector": label_selector}
        query.update({"limit": str(chunk_size)} if not_older_than is None else {"resourceVersion": not_older_than})
        chunks = list(self._chunks(path, query))
        return ObjectList(tuple(item for chunk in chunks for item in chunk.items), chunks[-1].resource_version)

    def each_object(self, path: str, *, label_selector: str = "", chunk_size: int = CHUNK_SIZE) -> Iterator[JsonObject]:
        """All objects of a collection, one after another, with never more than one chunk in memory.

        Raises (while it is iterated):
            GoneError: the list took longer than the server keeps its continuation (five minutes).
        """
        chunks = self._chunks(path, {"labelSelector": label_selector, "limit": str(chunk_size)})
        # chain and map let go of a chunk before they ask for the next; a loop's variable would hold it.
        return chain.from_iterable(map(attrgetter("items"), chunks))

    def _chunks(self, path: str, query: dict[str, str]) -> Iterator[ObjectList]:
        while True:
            chunk, query["continue"] = _chunk(path, self.get(path, query))
            yield chunk
            del chunk
            if not query["continue"]:
                return

    def watch(
        self,
        path: str,
        *,
        resource_version: str,
        field_selector: str = "",
        label_selector: str = "",
        server_timeout_seconds: int,
        read_timeout_seconds: float,
    ) -> WatchStream:
        """An open watch from `resource_version` on, with bookmarks.

        Args:
            server_timeout_seconds: after this the server ends the stream.
            read_timeout_seconds: longest silence; bookmarks come about every 60 s.

        Raises:
            GoneError: the resource version is too old (also later, out of the stream).
        """
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(server_timeout_seconds),
            "fieldSelector": field_selector,
            "labelSelector": label_selector,
        }
        response = self._send(
            "GET",
            path,
            query=query,
            retries=urllib3.Retry(total=False, redirect=False, raise_on_status=False),
            read_timeout_seconds=read_timeout_seconds,
            stream=True,
        )
        if response.status != 200:
            try:
                content = response.read(64 << 10)
            except (HTTPError, OSError):
                content = b""
            finally:
                response.close()
            raise refusal(f"watch {path}", response.status, content)
        return WatchStream(f"watch {path}", response)

    def _exchange(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: JsonObject | None = None,
        content_type: str = "application/json",
        read_timeout_seconds: float = READ_TIMEOUT_SECONDS,
    ) -> JsonObject:
        response = self._send(
            method,
            path,
            query=query,
            body=body,
            content_type=content_type,
            retries=self._retries,
            read_timeout_seconds=read_timeout_seconds,
        )
        request = f"{method} {path}"
        if not 200 <= response.status < 300:
            raise refusal(request, response.status, response.data)
        return json_object(request, response.data)

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None,
        retries: urllib3.Retry,
        body: JsonObject | None = None,
        content_type: str = "application/json",
        read_timeout_seconds: float,
        stream: bool = False,
    ) -> urllib3.BaseHTTPResponse:
        headers = dict(self._headers)
        authorization = self._connection.authorization()
        if authorization is not None:
            headers["Authorization"] = authorization
        if body is not None:
            headers["Content-Type"] = content_type
        url = self._connection.base_url + path
        wanted = {key: value for key, value in (query or {}).items() if value}
        if wanted:
            url += "?" + urlencode(wanted)
        try:
            return self._connection.pool.request(
                method,
                url,
                body=None if body is None else json.dumps(body, separators=(",", ":")).encode(),
                headers=headers,
                timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_SECONDS, read=read_timeout_seconds),
                retries=retries,
                redirect=False,
                preload_content=not stream,
            )
        except (HTTPError, OSError) as error:
            raise ApiUnreachableError(
                f"{method} {path} at {self._connection.base_url} got no answer: {cause_text(error)}"
            ) from error


def _chunk(path: str, answer: JsonObject) -> tuple[ObjectList, str]:
    """The objects of a list answer, and what to ask the next one with; empty when there is none."""
    items, metadata = answer.get("items"), answer.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(items, list | None):
        raise UnexpectedAnswerError(f"GET {path} was not answered with a list of objects")
    objects = tuple(item for item in items or () if isinstance(item, dict))
    return ObjectList(objects, str(metadata.get("resourceVersion", ""))), str(metadata.get("continue") or "")
