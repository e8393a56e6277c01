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

    It is the init container's, unless `cpuplan run` has a worse one and did not start its container's command.
    """
    found = [_of_init(pod, boot_id), *(_of_container(container, pod, boot_id) for container in pod.containers)]
    verdicts = [verdict for verdict in found if verdict is not None]
    if verdicts:
        return _json(min(verdicts, key=lambda verdict: _WORST_FIRST.index(verdict["verdict"])))
    standing = pod.annotations.get(HOSTFLAG, "")
    is_ours = len(standing) <= _MOST_BYTES and _document(standing).get("podUID") == pod.uid
    return standing if is_ours else None


def verdict_json(message: str, pod_uid: str, boot_id: str) -> str | None:
    """The verdict of an init container's termination message as compact JSON; None where the message is none.

    The message's first line begins with the verdict and may go on with a fault code. The JSON object on the second
    line says the same and more; it may be missing or cut off. A message without a verdict is the end of a crash's log.
    """
    verdict = _verdict(message, pod_uid, boot_id)
    return _json(verdict) if verdict is not None else None


def _of_init(pod: Pod, boot_id: str) -> dict[str, Any] | None:
    container = pod.container(injected.NAME)
    if container is None or container.kind is not ContainerKind.INIT:
        return None
    found = _verdict(container.message or "", pod.uid, boot_id)
    is_silent_failure = found is None and container.exit_code not in (None, 0) and not pod.is_deleting
    return _value(_FAIL, injected.CRASHED, pod.uid, boot_id, []) if is_silent_failure else found


def _of_container(container: Container, pod: Pod, boot_id: str) -> dict[str, Any] | None:
    """The verdict of a container whose last message is that of `cpuplan run`; None for any other, and while it runs."""
    message = container.message or ""
    is_ours = container.kind is not ContainerKind.INIT and _summary(message).get("podUID") == pod.uid
    if container.is_running or not is_ours:
        return None
    return _verdict(message, pod.uid, boot_id)


def _verdict(message: str, pod_uid: str, boot_id: str) -> dict[str, Any] | None:
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
