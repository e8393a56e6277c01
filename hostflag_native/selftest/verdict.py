"""What checks come to: outcomes, the check list that collects them, and the verdict that sums them up."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from hostflag_native.errors import StreamStuckError, StreamSyncError

TERMINATION_MESSAGE_BYTES: Final = 4096
"""What the kubelet keeps of a termination message: its last 4,096 bytes."""

LONGEST_LINE: Final = 300
"""Characters of the verdict line; verdict and fault code stand within its first 80."""

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
    """The checks so far, in order, also for a thread that cuts the test short."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._checks: list[Check] = []
        self._running: tuple[str, str] | None = None

    def run(self, part: str, name: str, fault: str, check: Callable[[], Figures | None]) -> bool:
        """Makes one check and notes what it came to; whatever it raises is a finding, none ends the self-test.

        Args:
            fault: the code of a fault that the check does not name itself.

        Returns:
            True if it passed.
        """
        with self._lock:
            self._running = (part, name)
        started = time.monotonic()
        done = replace(_make(part, name, fault, check), seconds=time.monotonic() - started)
        with self._lock:
            self._running = None
            self._checks.append(done)
        return done.outcome is Outcome.PASS

    def cut_short(self, fault: str, text: str) -> None:
        """Notes the running check, if any, as failed."""
        with self._lock:
            part, name = self._running or ("host", "start")
            self._checks.append(Check(part, name, Outcome.FAIL, fault, f"{part} {name}: {text}"))

    def checks(self) -> tuple[Check, ...]:
        """What was noted so far."""
        with self._lock:
            return tuple(self._checks)


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
        text = worst.text if worst is not None and worst.text else f"{len(checks)} checks in {seconds:.1f} s"
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
        """The line and the compact JSON below it, at most limit_bytes together.

        Where that is too much, the largest figures go first, then the largest members; "leftOut" names them.
        """
        details = json.loads(json.dumps(self.details))
        left_out: list[str] = []
        while True:
            document = details | ({"leftOut": left_out} if left_out else {})
            message = f"{self.line}\n{json.dumps(document, separators=(',', ':'))}"
            if len(message.encode()) <= limit_bytes or not details:
                return message
            left_out.append(_drop_largest(details))


def _drop_largest(details: dict[str, Any]) -> str:
    """Removes the largest figures of a check, else the largest member; returns what it was."""
    checks = [(part, check) for part, members in details.get("parts", {}).items() for check in members]
    with_figures = [(part, check) for part, check in checks if "figures" in check]
    if with_figures:
        part, check = max(with_figures, key=lambda found: len(json.dumps(found[1]["figures"])))
        del check["figures"]
        return f"{part}/{check['name']}"
    largest = max(details, key=lambda name: len(json.dumps(details[name])))
    del details[largest]
    return largest
