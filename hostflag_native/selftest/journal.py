"""What the test has found so far, told to its supervisor as it goes: a hang or a crash loses nothing of it."""

import json
import os
from dataclasses import asdict
from typing import Any

from hostflag_native.selftest.told import CHECK, DEVICE, ENDED, RUNNING, Tell
from hostflag_native.selftest.verdict import Check, Outcome


def teller(descriptor: int) -> Tell:
    """Writes what is told to a pipe, one JSON object a line."""

    def tell(kind: str, thing: Any) -> None:
        line = json.dumps({kind: asdict(thing) if isinstance(thing, Check) else thing}).encode() + b"\n"
        while line:
            line = line[os.write(descriptor, line) :]

    return tell


class Journal:
    """What was told.

    Attributes:
        checks: the checks that were made, in order.
        running: part and name of the check that was begun and not ended, None between checks.
        devices: one object for each device that was looked at.
        has_ended: all checks were made.
        line_count: how much was told.
    """

    def __init__(self) -> None:
        self.checks: list[Check] = []
        self.running: tuple[str, str] | None = None
        self.devices: list[dict[str, Any]] = []
        self.has_ended = False
        self.line_count = 0
        self._rest = b""

    def take(self, received: bytes) -> None:
        """Notes the lines that are complete."""
        *lines, self._rest = (self._rest + received).split(b"\n")
        for line in lines:
            self.line_count += 1
            self._note(json.loads(line))

    def _note(self, message: dict[str, Any]) -> None:
        ((kind, value),) = message.items()
        if kind == RUNNING:
            part, name = value
            self.running = (part, name)
        elif kind == CHECK:
            self.checks.append(Check(**(value | {"outcome": Outcome(value["outcome"])})))
            self.running = None
        elif kind == DEVICE:
            self.devices.append(value)
        self.has_ended = self.has_ended or kind == ENDED
