"""The self-test's verdict, from the injected init container's termination message to the annotation's value."""

from __future__ import annotations

import json
import re
from typing import Any

from ..kube import injected
from ..kube.annotations import HOSTFLAG, HOSTFLAG_BYTES
from ..kube.pods import Container, ContainerKind, Pod

_MOST_BYTES = HOSTFLAG_BYTES - len(HOSTFLAG)

_WORD = re.compile(r"[\w.:-]{1,48}", re.ASCII)
"""Verdicts, fault codes, boot ids and device UUIDs; whatever else a message holds never reaches the annotation."""

_FIRST_LINE_CHARACTERS = 80
"""The verdict and the fault code stand in the first characters of the message, whatever follows is cut."""

_PASS, _FAIL = "pass", "fail"
_WORST_FIRST = ("stuck", _FAIL, "untested", _PASS)
"""What a self-test can come to."""


def hostflag_annotation(pod: Pod, boot_id: str) -> str | None:
    """The value of `cpuplan.dev/hostflag` that the pod should have; None without a verdict of this pod.

    It is the init container's, unless `cpuplan run` has a worse one and did not start its container's command. While
    such a container runs again and is not ready, nobody knows whether the command starts this time: what stands goes
    on counting, so that a crash loop does not change the annotation at every start.
    """
    standing = _standing(pod)
    kept_back = [container for container in pod.containers if _is_of_run(container, pod)]
    found = [_of_init(pod, boot_id)]
    if any(container.is_running and not container.is_ready for container in kept_back):
        found.append(standing)
    found += [_verdict(c.message or "", pod.uid, boot_id) for c in kept_back if not c.is_running]
    verdicts = [verdict for verdict in found if verdict is not None]
    if verdicts:
        return _json(min(verdicts, key=lambda verdict: _WORST_FIRST.index(verdict["verdict"])))
    return None if standing is None else _json(standing)


def _of_init(pod: Pod, boot_id: str) -> dict[str, Any] | None:
    container = pod.container(injected.NAME)
    if container is None or container.kind is not ContainerKind.INIT:
        return None
    found = _verdict(container.message or "", pod.uid, boot_id)
    is_silent_failure = found is None and container.exit_code not in (None, 0) and not pod.is_deleting
    return _value(_FAIL, injected.CRASHED, pod.uid, boot_id, []) if is_silent_failure else found


def _is_of_run(container: Container, pod: Pod) -> bool:
    """Whether the container's last end was that of a `cpuplan run` that did not start its command."""
    is_message_ours = _summary(container.message or "").get("podUID") == pod.uid
    return container.kind is not ContainerKind.INIT and is_message_ours


def _standing(pod: Pod) -> dict[str, Any] | None:
    """The verdict that stands on the pod; None where there is none, or one that is not of this pod or not ours."""
    text = pod.annotations.get(HOSTFLAG, "")
    document = _document(text) if len(text) <= _MOST_BYTES else {}
    is_ours = document.get("podUID") == pod.uid and document.get("verdict") in _WORST_FIRST
    return document if is_ours and len(_json(document)) <= _MOST_BYTES else None


def _verdict(message: str, pod_uid: str, boot_id: str) -> dict[str, Any] | None:
    """The verdict of a termination message; None where the message is empty.

    The message's first line begins with the verdict and may go on with a fault code. The JSON object on the second
    line says the same and more; it may be missing or cut off. A message without a verdict is the end of a crash's log.
    """
    head = message.strip().partition("\n")[0]
    words = [_word(word.strip(":,;()")) for word in head[:_FIRST_LINE_CHARACTERS].split()]
    if not words:
        return None
    summary = _summary(message)
    verdict, fault = _word(summary.get("verdict")), _word(summary.get("fault"))
    if verdict not in _WORST_FIRST:
        verdict, fault = words[0].lower(), "".join(words[1:2])
    if verdict not in _WORST_FIRST:
        verdict, fault = _FAIL, injected.CRASHED
    return _value(verdict, fault, pod_uid, _word(summary.get("bootID")) or boot_id, summary.get("deviceUUIDs"))


def _value(verdict: str, fault: str, pod_uid: str, boot_id: str, device_uuids: object) -> dict[str, Any]:
    value: dict[str, Any] = {
        "verdict": verdict,
        "fault": "" if verdict == _PASS else fault,  # the line of a pass has "ok" in the place of a code
        "bootID": boot_id,
        "podUID": pod_uid,
        "deviceUUIDs": [],
    }
    value["deviceUUIDs"] = _fitting(device_uuids, _MOST_BYTES - len(_json(value)))
    return value


def _summary(message: str) -> dict[str, Any]:
    """The object on the second line; empty where there is none."""
    return _document(message.strip().partition("\n")[2].partition("\n")[0])


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
