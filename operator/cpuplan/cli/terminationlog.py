"""A self-test's verdict as a termination message: what `kubectl describe` shows and the node's agent reads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..host.identity import read_boot_id
from ..host.root import read_text
from ..host.sysfs import THIS_HOST
from .selftest import SelfTestReport
from .streams import tell

TERMINATION_LOG = Path("/dev/termination-log")

MOST_BYTES = 4096
"""What the kubelet keeps of a termination message (pkg/kubelet/container, MaxContainerTerminationMessageLength)."""

LONGEST_LINE = 300
"""Characters of the verdict line: the event shows the first 80."""

_TIGHT = (",", ":")


@dataclass(frozen=True, slots=True)
class TerminationMessage:
    """Three lines, what matters most first: of a pod with many containers the kubelet keeps the beginning only.

    1. the verdict, its fault code and a sentence
    2. a small JSON object: the same, and what it is valid for
    3. the self-test's own JSON object, where it gave one

    Source: pkg/kubelet/status, status_manager.go: 12 KiB divided among all containers of the pod.
    """

    line: str
    summary: dict[str, Any]
    details: dict[str, Any]

    @classmethod
    def of(cls, report: SelfTestReport, plan_folder: Path, **more: Any) -> TerminationMessage:
        """The message about a report; `more` goes to the end of the small object."""
        summary = {
            "verdict": str(report.outcome),
            "fault": report.fault,
            "bootID": read_boot_id(THIS_HOST),
            "podUID": read_text(plan_folder / "uid") or "",
            "deviceUUIDs": report.device_uuids,
        }
        return cls(report.line[:LONGEST_LINE], summary | more, report.details)

    def whole(self) -> str:
        """Everything."""
        return self._with(self.details)

    def fitting(self) -> str:
        """At most MOST_BYTES: of the self-test's object the least telling things are left out, and counted."""
        if not self.details or len(self.whole().encode()) <= MOST_BYTES:
            return self.whole()
        # Only what the self-test has given is shortened: where that package is missing, nothing is.
        from hostflag_native.selftest.shortened import shortened  # noqa: PLC0415

        return self._with(shortened(self.details, MOST_BYTES - len(self._with({}).encode()) - 1))

    def write(self, path: Path, command: str) -> None:
        """Writes the termination log where the kubelet put one; elsewhere the command's own output has to do."""
        try:
            if path.exists():
                path.write_text(self.fitting(), encoding="utf-8")
        except OSError as error:
            tell(f"cpuplan {command}: {path} cannot be written: {error.strerror}")

    def _with(self, details: dict[str, Any]) -> str:
        objects = [self.summary, details] if details else [self.summary]
        return "\n".join((self.line, *(json.dumps(each, separators=_TIGHT) for each in objects)))
