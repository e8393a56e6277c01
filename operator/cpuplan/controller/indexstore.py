"""The shared ConfigMap in the cluster: read once, then written only where the wanted content differs.

The operator is its only writer. Every write names the resource version that it is based on, so that a leader
which does not know yet that it was replaced cannot overwrite its successor.
"""

import contextlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..kube.answers import JsonObject
from ..kube.client import KubeClient
from ..kube.errors import ConflictError, NotFoundError
from ..kube.paths import configmap_path, configmaps_path
from .packing import Share, configmap_number, pack

LOG = logging.getLogger(__name__)

INDEX_LABEL = "cpuplan.dev/index"
"""Marks the ConfigMaps of the index; its value is the name of the first one."""


@dataclass(frozen=True, slots=True)
class Held:
    """One ConfigMap as the cluster has it."""

    resource_version: str
    is_labelled: bool
    data: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class IndexChange:
    """One write that is to be made.

    Attributes:
        verb: `create`, `patch` or `delete`.
        data: for `patch` only the keys that differ, None for those that go.
    """

    verb: str
    name: str
    data: Mapping[str, str | None]
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class IndexSize:
    """What the index holds, for the metrics."""

    configmap_count: int
    node_count: int
    size_bytes: int


def changes(held: Mapping[str, Held], wanted: Mapping[str, Mapping[str, str]]) -> list[IndexChange]:
    """The writes that turn `held` into `wanted`; empty when they are equal. Additions come before removals."""
    found: list[IndexChange] = []
    for name, data in wanted.items():
        now = held.get(name)
        if now is None:
            found.append(IndexChange("create", name, dict(data)))
            continue
        differing: dict[str, str | None] = {key: text for key, text in data.items() if now.data.get(key) != text}
        differing.update((key, None) for key in now.data if key not in data)
        if differing or not now.is_labelled:
            found.append(IndexChange("patch", name, differing, now.resource_version))
    found.extend(
        IndexChange("delete", name, {}, now.resource_version)
        for name, now in held.items()
        if name not in wanted and now.is_labelled
    )
    return found


class IndexStore:
    """The index of one release. Call from one thread."""

    def __init__(self, client: KubeClient, namespace: str, base: str) -> None:
        self._client = client
        self._namespace = namespace
        self._base = base
        self._held: dict[str, Held] | None = None
        # Read by name: without the label they are ours too, where we need them.
        self._claimed = {base}

    def forget(self) -> None:
        """The next `write` reads the ConfigMaps again (somebody else may have changed them)."""
        self._held = None

    def write(self, shares: Iterable[Share]) -> list[IndexChange]:
        """Brings the cluster's index to `shares`; the writes that were needed.

        Raises:
            ConflictError, NotFoundError: somebody else wrote; what is held is forgotten, so the next call repairs.
            KubeError: anything else that went wrong; what was written so far is remembered.
        """
        held = self._held = self._read() if self._held is None else self._held
        current = {name: now.data for name, now in held.items()}
        needed = changes(held, pack(self._base, list(shares), current))
        for change in needed:
            try:
                self._apply(held, change)
            except (ConflictError, NotFoundError):
                if change.verb == "create":
                    self._claimed.add(change.name)
                self.forget()
                raise
            LOG.info(
                "index written verb=%s configmap=%s/%s keys=%s",
                change.verb,
                self._namespace,
                change.name,
                len(change.data),
            )
        return needed

    def texts(self) -> list[str]:
        """What the index says of each node, as the cluster has it.

        Raises:
            KubeError: the API server did not answer.
        """
        held = self._held = self._read() if self._held is None else self._held
        return [text for now in held.values() for text in now.data.values()]

    def size(self) -> IndexSize:
        """What the index holds as far as is known."""
        held = self._held or {}
        return IndexSize(
            configmap_count=len(held),
            node_count=len({node for now in held.values() for node in now.data}),
            size_bytes=sum(len(k) + len(v.encode()) for now in held.values() for k, v in now.data.items()),
        )

    def _read(self) -> dict[str, Held]:
        found = self._client.list_objects(
            configmaps_path(self._namespace), label_selector=f"{INDEX_LABEL}={self._base}", chunk_size=10
        )
        held = {}
        for item in found.items:
            name = str(item["metadata"]["name"])
            if configmap_number(self._base, name) is not None:
                held[name] = _held(item)
        for name in sorted(self._claimed - held.keys()):
            with contextlib.suppress(NotFoundError):
                held[name] = _held(self._client.get(configmap_path(self._namespace, name)))
        return held

    def _apply(self, held: dict[str, Held], change: IndexChange) -> None:
        labels = {INDEX_LABEL: self._base, "app.kubernetes.io/managed-by": "cpuplan-operator"}
        path = configmap_path(self._namespace, change.name)
        if change.verb == "delete":
            self._client.delete(path, resource_version=change.resource_version)
            del held[change.name]
            return
        metadata: JsonObject = {"labels": labels}
        body: JsonObject = {"metadata": metadata, "data": dict(change.data)}
        if change.verb == "create":
            metadata["name"] = change.name
            answer = self._client.create(configmaps_path(self._namespace), body)
        else:
            metadata["resourceVersion"] = change.resource_version
            answer = self._client.merge_patch(path, body)
        held[change.name] = _held(answer)


def _held(configmap: JsonObject) -> Held:
    metadata = configmap["metadata"]
    return Held(
        resource_version=str(metadata.get("resourceVersion", "")),
        is_labelled=INDEX_LABEL in (metadata.get("labels") or {}),
        data=dict(configmap.get("data") or {}),
    )
