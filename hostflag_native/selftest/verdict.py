"""What checks come to: outcomes, the check list that collects them, and the verdict that sums them up."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from hostflag_native.errors import StreamStuckError, StreamSyncError
from hostflag_native.selftest.shortened import LONGEST_LINE, shortened
from hostflag_native.selftest.told import CHECK, RUNNING, Tell

TERMINATION_MESSAGE_BYTES: Final = 4096
"""What the kubelet keeps of a termination message: its last 4,096 bytes."""

PASS_CODE: Final = "ok"  # noqa: S105  a verdict
"""Stands where the fault code does in the line of a pass."""


class Outcome(StrEnum):
    """What a check, a part or the whole self-test came to."""

    PASS = "pass"  # noqa: S105  a verdict
    FAIL = "fail"
    UNTESTED = "untested"
    STUCK = "stuck"

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail (a fall-back is possible), 2 untested, 3 stuck (fail loudly)."""
        return _EXIT_CODES[self]


_EXIT_CODES: Final = {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.UNTESTED: 2, Outcome.STUCK: 3}
_WORST_FIRST: Final = (Outcome.STUCK, Outcome.FAIL, Outcome.UNTESTED, Outcome.PASS)

Figures = dict[str, Any]


class CheckFailedError(Exception):
    """A check met a fault.

    Attributes:
        fault: the stable code.
        figures: what was measured up to there.
    """

    def __init__(self, fault: str, text: str, figures: Figures | None = None) -> None:
        super().__init__(text)
        self.fault = fault
        self.figures = figures or {}


class UntestedError(Exception):
    """There is nothing to test.

    Attributes:
        fault: the stable code.
    """

    def __init__(self, fault: str, text: str) -> None:
        super().__init__(text)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Check:
    """One check that was made.

    Attributes:
        part: "host", "device" or "device <ordinal>".
        fault: a stable code, empty for a pass.
        text: a sentence, empty for a pass.
        seconds: how long it took.
    """

    part: str
    name: str
    outcome: Outcome
    fault: str = ""
    text: str = ""
    figures: Figures = field(default_factory=dict)
    seconds: float = 0.0

    def as_json(self) -> Figures:
        """The check without what is empty."""
        document: Figures = {"name": self.name, "outcome": str(self.outcome), "seconds": round(self.seconds, 3)}
        for key, value in (("fault", self.fault), ("text", self.text), ("figures", self.figures)):
            if value:
                document[key] = value
        return document


class Checklist:
    """The checks so far, in order; whoever listens is told of each as it begins and as it ends."""

    def __init__(self, tell: Tell = lambda _kind, _thing: None) -> None:
        self._tell = tell
        self._checks: list[Check] = []

    def run(self, part: str, name: str, fault: str, check: Callable[[], Figures | None]) -> bool:
        """Makes one check and notes what it came to; whatever it raises is a finding, none ends the self-test.

        Args:
            fault: the code of a fault that the check does not name itself.

        Returns:
            True if it passed.
        """
        self._tell(RUNNING, (part, name))
        started = time.monotonic()
        done = replace(_make(part, name, fault, check), seconds=time.monotonic() - started)
        self._checks.append(done)
        self._tell(CHECK, done)
        return done.outcome is Outcome.PASS

    def checks(self) -> tuple[Check, ...]:
        """What was noted so far."""
        return tuple(self._checks)


def interrupted(running: tuple[str, str] | None, outcome: Outcome, fault: str, text: str) -> Check:
    """The check that was running, if any, as one that came to no end of its own."""
    part, name = running or ("test", "start")
    where = name if _ordinal_of(part) is not None else f"{part} {name}"
    return Check(part, name, outcome, fault, f"{where}: {text}")


def _ordinal_of(part: str) -> int | None:
    """The ordinal in "device <ordinal>"; None for every other part."""
    _, _, ordinal = part.partition(" ")
    return int(ordinal) if ordinal.isdigit() else None


def _make(part: str, name: str, fault: str, check: Callable[[], Figures | None]) -> Check:
    try:
        return Check(part, name, Outcome.PASS, figures=check() or {})
    except CheckFailedError as error:
        return Check(part, name, Outcome.FAIL, error.fault, str(error), error.figures)
    except UntestedError as error:
        return Check(part, name, Outcome.UNTESTED, error.fault, str(error))
    except StreamStuckError as error:
        return Check(part, name, Outcome.STUCK, f"{part.split(maxsplit=1)[0]}-stuck", str(error))
    except StreamSyncError as error:
        return Check(part, name, Outcome.FAIL, fault, str(error))
    except Exception as error:  # noqa: BLE001  a self-test reports every fault that it meets
        return Check(part, name, Outcome.FAIL, fault, f"{type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the self-test came to.

    Attributes:
        outcome: the worst of all checks: stuck, fail, untested, pass.
        fault: the first worst check's code, empty for a pass.
        line: verdict, fault code and a sentence, for people.
        details: the JSON object with every check.
    """

    outcome: Outcome
    fault: str
    line: str
    details: dict[str, Any]

    @classmethod
    def of(
        cls, checks: tuple[Check, ...], started_monotonic: float, environment: Figures, devices: list[Figures]
    ) -> "Verdict":
        """Sums up the checks.

        Args:
            started_monotonic: time.monotonic() at the start, in seconds.
            environment: what the process found around it.
            devices: one object per device that was looked at.
        """
        outcome = next((o for o in _WORST_FIRST if any(c.outcome is o for c in checks)), Outcome.UNTESTED)
        worst = next((c for c in checks if c.outcome is outcome), None)
        fault = worst.fault if worst is not None else "nothing-tested"
        seconds = round(time.monotonic() - started_monotonic, 3)
        text = f"{len(checks)} checks in {seconds:.1f} s"
        if worst is not None and worst.text:
            text = _where(worst, devices) + worst.text
        line = f"{outcome} {fault or PASS_CODE}: {' '.join(text.split())}"[:LONGEST_LINE]
        parts: dict[str, list[Figures]] = {}
        for check in checks:
            parts.setdefault(check.part, []).append(check.as_json())
        details = {
            "verdict": str(outcome),
            "fault": fault,
            "exitCode": outcome.exit_code,
            "seconds": seconds,
            "devices": devices,
            "environment": environment,
            "parts": parts,
        }
        return cls(outcome, fault, line, details)

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 2 untested, 3 stuck."""
        return self.outcome.exit_code

    @property
    def device_uuids(self) -> tuple[str, ...]:
        """The UUIDs of the devices that the device part looked at."""
        return tuple(device["uuid"] for device in self.details.get("devices", ()) if device.get("uuid"))

    def termination_message(self, limit_bytes: int = TERMINATION_MESSAGE_BYTES) -> str:
        """The line and the compact JSON below it, at most limit_bytes together."""
        room_bytes = limit_bytes - len(self.line.encode()) - 1
        return f"{self.line}\n{json.dumps(shortened(self.details, room_bytes), separators=(',', ':'))}"


def _where(check: Check, devices: list[Figures]) -> str:
    """Which device a check is about, to begin its sentence with; empty for a check about none."""
    ordinal = _ordinal_of(check.part)
    if ordinal is None:
        return ""
    address = next((d["pciAddress"] for d in devices if d.get("ordinal") == ordinal and d.get("pciAddress")), "")
    return f"{check.part} at {address}: " if address else f"{check.part}: "
