"""What a client asks before it works: which kinds there are, and what it may do."""

from __future__ import annotations

import json

from tests.fakeapi.serving import Answer, Request

_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
_CORE = [
    {"name": "pods", "singularName": "pod", "kind": "Pod", "namespaced": True, "verbs": _VERBS},
    {"name": "namespaces", "singularName": "namespace", "kind": "Namespace", "namespaced": False, "verbs": _VERBS},
]

_DOCUMENTS = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "groups": []},
    "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": _CORE},
}

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def discovered(request: Request) -> Answer | None:
    """The answer to such a question (everybody may do everything here); None for any other request."""
    if request.method == "POST" and request.path == _REVIEWS:
        return Answer(201, json.dumps({**request.body, "status": {"allowed": True}}).encode())
    document = _DOCUMENTS.get(request.path)
    return None if document is None else Answer(200, json.dumps(document).encode())
