"""The self-test's verdict, from the injected init container's termination message to the annotation's value."""

from __future__ import annotations

import json
from typing import Any

from ..kube import injected
from ..kube.annotations import HOSTFLAG
from ..kube.pods import ContainerKind, Pod

MOST_DEVICES = 8
"""Device UUIDs that are kept, so that the annotation stays small."""

_FIRST_LINE_CHARACTERS = 80
"""The verdict and the fault code stand in the first characters of the message, whatever follows is cut."""


def hostflag_annotation(pod: Pod, boot_id: str) -> str | None:
    """The value of `cpuplan.dev/hostflag` that the pod should have; None without a verdict of this pod."""
    container = pod.container(injected.NAME)
    if container is not None and container.kind is ContainerKind.INIT and container.message:
        return verdict_json(container.message, pod.uid, boot_id)
    standing = pod.annotations.get(HOSTFLAG)
    return standing if standing is not None and _document(standing).get("podUID") == pod.uid else None


def verdict_json(message: str, pod_uid: str, boot_id: str) -> str | None:
    """The verdict of a termination message as compact JSON; None where the message is none.

    The message's first line begins with the verdict and may go on with a fault code. The JSON object that
    follows says the same and more; it may be missing or cut off.
    """
    head, _, rest = message.strip().partition("\n")
    words = [word.strip(":,;()") for word in head[:_FIRST_LINE_CHARACTERS].split()]
    if not words:
        return None
    details = _document(rest)
    uuids = details.get("deviceUUIDs")
    value = {
        "verdict": _text(details.get("verdict")) or words[0].lower(),
        "fault": _text(details.get("fault")) if details else (words[1] if len(words) > 1 else ""),
        "bootID": _text(details.get("bootID")) or boot_id,
        "podUID": pod_uid,
        "deviceUUIDs": [_text(uuid) for uuid in uuids[:MOST_DEVICES]] if isinstance(uuids, list) else [],
    }
    return json.dumps(value, separators=(",", ":"))


def _text(value: object) -> str:
    return value[:64] if isinstance(value, str) else ""


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
