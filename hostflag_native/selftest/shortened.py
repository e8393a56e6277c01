"""A self-test's JSON object made small enough for a termination message, the least telling things first."""

import copy
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

LONGEST_LINE: Final = 300
"""Characters of the verdict line, and of a sentence that is cut; verdict and fault code stand within its first 80."""

_KEPT: Final = ("verdict", "fault", "exitCode", "seconds", "parts", "devices")
"""Members that go last, the last of them first."""

_ALWAYS_KEPT: Final = 4
"""How many of those never go."""

Document = dict[str, Any]


def shortened(details: Document, room_bytes: int) -> Document:
    """The object such that its compact JSON fits, if it can be; "leftOut" counts what went, by kind.

    In this order, each only as far as is needed:

    1. figures of passed checks, the largest first
    2. passed checks
    3. attributes of devices
    4. members of the environment, the largest first
    5. figures, then the whole, of checks that did not pass but for the first worst one, which decided
    6. devices but for that check's
    7. figures and the end of the text of that check
    8. every member that is neither the verdict nor that check
    """
    document = copy.deepcopy(details)
    left_out: Counter[str] = Counter()
    removals = _removals(document)
    while True:
        found = document | ({"leftOut": dict(left_out)} if left_out else {})
        if len(json.dumps(found, separators=(",", ":"))) <= room_bytes:
            return found
        kind = next(removals, None)
        if kind is None:
            return found
        left_out[kind] += 1


def _removals(document: Document) -> Iterator[str]:
    """Takes one thing out of the document at each step and gives its kind."""
    worst = _first_worst(document)
    passed = [check for _, check in _checks(document) if check.get("outcome") == "pass"]
    others = [
        check for _, check in reversed(_checks(document)) if check is not worst and check.get("outcome") != "pass"
    ]
    yield from _without_figures("passedFigures", passed)
    yield from _without_checks(document, "passedChecks", passed)
    yield from _without_attributes(document)
    yield from _without_members(document.get("environment", {}), "environment", kept=())
    yield from _without_figures("otherFigures", others)
    yield from _without_checks(document, "otherChecks", others)
    yield from _without_devices(document, worst)
    if worst is not None:
        yield from _without_figures("figures", [worst])
        if len(worst.get("text", "")) > LONGEST_LINE:
            worst["text"] = worst["text"][:LONGEST_LINE]
            yield "text"
    for end in range(len(_KEPT), _ALWAYS_KEPT - 1, -1):
        yield from _without_members(document, "members", kept=_KEPT[:end])


def _checks(document: Document) -> list[tuple[str, Document]]:
    parts = document.get("parts", {})
    return [(part, check) for part, members in parts.items() for check in members]


def _first_worst(document: Document) -> Document | None:
    """The check that the verdict is from; None for a pass."""
    decided = (document.get("verdict"), document.get("fault"))
    found = (check for _, check in _checks(document) if (check.get("outcome"), check.get("fault")) == decided)
    return next(found, None)


def _without_figures(kind: str, checks: list[Document]) -> Iterator[str]:
    with_figures = [check for check in checks if check.get("figures")]
    for check in sorted(with_figures, key=lambda check: -_size(check["figures"])):
        del check["figures"]
        yield kind


def _without_checks(document: Document, kind: str, checks: list[Document]) -> Iterator[str]:
    for unwanted in checks:
        parts = document["parts"]
        for part in [part for part, members in parts.items() if any(check is unwanted for check in members)]:
            parts[part] = [check for check in parts[part] if check is not unwanted]
            if not parts[part]:
                del parts[part]
        yield kind


def _without_attributes(document: Document) -> Iterator[str]:
    for device in document.get("devices", ()):
        if device.pop("attributes", None) is not None:
            yield "attributes"


def _without_devices(document: Document, worst: Document | None) -> Iterator[str]:
    devices: list[Document] = document.get("devices", [])
    part = next((part for part, check in _checks(document) if check is worst), "")
    for device in [d for d in reversed(devices) if f"device {d.get('ordinal')}" != part]:
        devices.remove(device)
        yield "devices"


def _without_members(members: Document, kind: str, *, kept: tuple[str, ...]) -> Iterator[str]:
    for name in sorted((name for name in members if name not in kept), key=lambda name: -_size(members[name])):
        del members[name]
        yield kind


def _size(value: object) -> int:
    return len(json.dumps(value))
