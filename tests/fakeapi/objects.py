"""Objects as the API server keeps them: where they are, what selects them, how a patch changes them."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from typing import Any

JsonObject = dict[str, Any]

Key = tuple[str, "str | None", str]
"""Collection (such as `api/v1/pods`), namespace and name."""

PATH = re.compile(
    r"/(?P<group>api/v1|apis/[^/]+/[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/[a-z]))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?(?P<status>/status)?"
)


def collection_of(path: str) -> str:
    """The collection that a path is of, such as `api/v1/pods`."""
    match = PATH.fullmatch(path)
    assert match is not None, path
    return f"{match['group']}/{match['plural']}"


def key_of(path: str) -> Key:
    """Collection, namespace and name of the object at a path."""
    match = PATH.fullmatch(path)
    assert match is not None, path
    assert match["name"] is not None, path
    return collection_of(path), match["namespace"], match["name"]


def selector_of(query: dict[str, str]) -> Callable[[JsonObject], bool]:
    """Whether an object is one that the query's field and label selectors ask for."""
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


def merged(target: Any, patch: Any) -> Any:
    """The target after a merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def status_body(code: int, reason: str) -> bytes:
    """A Status object that says that a request failed."""
    content = {"kind": "Status", "status": "Failure", "code": code, "reason": reason}
    return json.dumps({**content, "message": f"test: {reason}"}).encode()
