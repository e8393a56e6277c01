"""Pods that tests of the policies create, and how they patch them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from tests.apiserver import ApiServer

PODS = "/api/v1/namespaces/demo/pods"
MERGE = "application/merge-patch+json"

_numbers = itertools.count()


def make_pod(server: ApiServer, *, node: str | None = "gpu-1", **metadata: Any) -> str:
    """The path of a new pod on that node."""
    name = f"pod-{next(_numbers)}"
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    spec: dict[str, Any] = {
        "containers": [{"name": "engine", "image": "example.test/engine:1", "resources": resources}]
    }
    if node is not None:
        spec["nodeName"] = node
    server.must("POST", PODS, {"metadata": {"name": name, **metadata}, "spec": spec})
    return f"{PODS}/{name}"


def annotated(annotations: Mapping[str, str | None]) -> dict[str, Any]:
    """A merge patch of annotations."""
    return {"metadata": {"annotations": dict(annotations)}}
