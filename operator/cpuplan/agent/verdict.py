"""The self-test's verdict, from the injected init container's termination message to the annotation's value."""

from __future__ import annotations

import json
import re
from typing import Any

from ..kube import injected
from ..kube.annotations import HOSTFLAG, HOSTFLAG_BYTES
from ..kube.pods import ContainerKind, Pod

_MOST_BYTES = HOSTFLAG_BYTES - len(HOSTFLAG)

_WORD = re.compile(r"[\w.:-]{1,48}", re.ASCII)
"""Verdicts, fault codes, boot ids and device UUIDs; whatever else a message holds never reaches the annotation."""

_FIRST_LINE_CHARACTERS = 80
"""The verdict and the fault code stand in the first characters of the message, whatever follows is cut."""


def hostflag_annotation(pod: Pod, boot_id: str) -> str | None:
    """The value of `cpuplan.dev/hostflag` that the pod should have; None without a verdict of this pod."""
    container = pod.container(injected.NAME)
    if container is not None and container.kind is ContainerKind.INIT and container.message:
        return verdict_json(container.message, pod.uid, boot_id)
    standing = pod.annotations.get(HOSTFLAG, "")
    is_ours = len(standing) <= _MOST_BYTES and _document(standing).get("podUID") == pod.uid
    return standing if is_ours else None


def verdict_json(message: str, pod_uid: str, boot_id: str) -> str | None:
    """The verdict of a termination message as compact JSON; None where the message is none.

    The message's first line begins with the verdict and may go on with a fault code. The JSON object that
    follows says the same and more; it may be missing or cut off.
    """
    head, _, rest = message.strip().partition("\n")
    words = [word.strip(":,;()") for word in head[:_FIRST_LINE_CHARACTERS].split()]
    details = _document(rest)
    verdict = _word(details.get("verdict")) or (_word(words[0]).lower() if words else "")
    if not verdict:
        return None
    value: dict[str, Any] = {
        "verdict": verdict,
        "fault": _word(details.get("fault")) if details else _word(words[1] if len(words) > 1 else ""),
        "bootID": _word(details.get("bootID")) or boot_id,
        "podUID": pod_uid,
        "deviceUUIDs": [],
    }
    value["deviceUUIDs"] = _fitting(details.get("deviceUUIDs"), _MOST_BYTES - len(_json(value)))
    return _json(value)


def _fitting(listed: object, room_bytes: int) -> list[str]:
    """As many of the devices as there is room for."""
    fitting: list[str] = []
    for uuid in filter(None, map(_word, listed if isinstance(listed, list) else ())):
        room_bytes -= len(f'"{uuid}",')
        if room_bytes < 0:
            break
        fitting.append(uuid)
    return fitting


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


def _word(value: object) -> str:
    return value if isinstance(value, str) and _WORD.fullmatch(value) else ""


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
