"""`cpuplan init`: the init container. Waits for the plan, tests the host, reports, lets the pod start.

It needs no network, no token, no root and nothing to write but the termination log.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from pathlib import Path
from typing import Any, NoReturn

from ..host.identity import read_boot_id
from ..host.root import read_text
from ..host.sysfs import THIS_HOST
from ..inprocess.published import PLAN_FOLDER, NotPublished, wait_for_pod_plan
from ..model.podplan import PodPlan
from .inforce import seconds
from .selftest import Outcome, SelfTestReport, report_of, skipped, start_selftest
from .streams import put, tell

TERMINATION_LOG = Path("/dev/termination-log")

MOST_BYTES = 4096
"""What the kubelet keeps of a termination message (pkg/kubelet/container, MaxContainerTerminationMessageLength)."""

REPORT, DEVICE, REQUIRED, SKIP = "report", "device", "required", "skip"

_EXIT_CODES = {Outcome.FAIL: 1, Outcome.STUCK: 3}
_TIGHT = (",", ":")

LONGEST_LINE = 300
"""Characters of a sentence in the termination message: the event shows the first 80."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `cpuplan init`."""
    parser.add_argument("--plan-dir", type=Path, default=PLAN_FOLDER, metavar="DIR", help="where the plan volume is")
    parser.add_argument(
        "--wait-seconds", type=seconds, default=15.0, metavar="N", help="longest wait for the plan (default: 15)"
    )
    parser.add_argument(
        "--selftest",
        choices=(REPORT, DEVICE, REQUIRED, SKIP),
        default=REPORT,
        help="report: test the host; device: and the devices; required: and let fail or stuck stop the pod; skip: none",
    )
    parser.add_argument(
        "--termination-log", type=Path, default=TERMINATION_LOG, metavar="FILE", help="where the verdict goes"
    )


def run(namespace: argparse.Namespace) -> int:
    """Waits and tests side by side; returns 0 unless a required self-test met fail (1) or stuck (3)."""
    signal.signal(signal.SIGTERM, _leave)  # as PID 1 of its container it would not hear SIGTERM otherwise
    selftest = None
    if namespace.selftest != SKIP:
        selftest = start_selftest(device_part=namespace.selftest in (DEVICE, REQUIRED))
    try:
        started = time.monotonic()
        found = wait_for_pod_plan(namespace.wait_seconds, namespace.plan_dir)
        waited_seconds = time.monotonic() - started
        report = skipped() if namespace.selftest == SKIP else report_of(selftest)
    finally:
        if selftest is not None:
            selftest.end()
    message = termination_message(report, found, waited_seconds, namespace.plan_dir)
    _write(namespace.termination_log, message)
    put(message)
    return _EXIT_CODES.get(report.outcome, 0) if namespace.selftest == REQUIRED else 0


def termination_message(
    report: SelfTestReport, found: PodPlan | NotPublished, waited_seconds: float, plan_folder: Path
) -> str:
    """The verdict line, and below it one compact JSON object; at most MOST_BYTES together.

    Where the self-test's own object is too large, its largest members are left out and named.
    """
    document: dict[str, Any] = {
        "verdict": str(report.outcome),
        "fault": report.fault,
        "bootID": read_boot_id(THIS_HOST),
        "podUID": read_text(plan_folder / "uid") or "",
        "deviceUUIDs": report.device_uuids,
        "plan": _plan_document(found, waited_seconds),
    }
    details = dict(report.details)
    left_out: list[str] = []
    while True:
        selftest = details | ({"leftOut": left_out} if left_out else {})
        message = "\n".join(
            (report.line[:LONGEST_LINE], json.dumps(document | {"selftest": selftest}, separators=_TIGHT))
        )
        if len(message.encode()) <= MOST_BYTES or not details:
            return message
        largest = max(details, key=lambda name: len(json.dumps(details[name])))
        del details[largest]
        left_out.append(largest)


def _plan_document(found: PodPlan | NotPublished, waited_seconds: float) -> dict[str, Any]:
    waited = {"waitedSeconds": round(waited_seconds, 3)}
    if isinstance(found, NotPublished):
        return {"state": found.reason, "why": found.why[:LONGEST_LINE]} | waited
    return {"state": "published", "generation": found.generation, "status": str(found.status)} | waited


def _write(path: Path, message: str) -> None:
    """Writes the termination log where the kubelet put one; elsewhere standard output has to do."""
    try:
        if path.exists():
            path.write_text(message, encoding="utf-8")
    except OSError as error:
        tell(f"cpuplan init: {path} cannot be written: {error.strerror}")


def _leave(signal_number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + signal_number)
