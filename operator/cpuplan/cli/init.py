"""`cpuplan init`: the init container. Waits for the plan, tests the host, reports, lets the pod start.

It needs no network, no token, no root and nothing to write but the termination log.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from ..inprocess.published import PLAN_FOLDER, NotPublished, wait_for_pod_plan
from ..model.podplan import PodPlan
from .inforce import seconds
from .selftest import Outcome, SelfTestReport, report_of, skipped, start_selftest
from .sigterm import ended_by_sigterm, held_back
from .streams import put
from .terminationlog import TERMINATION_LOG, TerminationMessage

REPORT, DEVICE, REQUIRED, SKIP = "report", "device", "required", "skip"

_EXIT_CODES = {Outcome.FAIL: 1, Outcome.STUCK: 3}

LONGEST_WHY = 160
"""Characters of the sentence why there is no plan: it stands in the part of the message that must come through."""


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
    with ended_by_sigterm():
        report, plan = _test_and_wait(namespace)
    message = TerminationMessage.of(report, namespace.plan_dir, plan=plan)
    message.write(namespace.termination_log, "init")
    put(message.whole())
    return _EXIT_CODES.get(report.outcome, 0) if namespace.selftest == REQUIRED else 0


def _test_and_wait(namespace: argparse.Namespace) -> tuple[SelfTestReport, dict[str, Any]]:
    """What the self-test came to, and what became of the plan meanwhile."""
    selftest = None
    try:
        if namespace.selftest != SKIP:
            with held_back():
                selftest = start_selftest(device_part=namespace.selftest in (DEVICE, REQUIRED))
        started = time.monotonic()
        found = wait_for_pod_plan(namespace.wait_seconds, namespace.plan_dir)
        plan = _plan_document(found, time.monotonic() - started)
        return skipped() if namespace.selftest == SKIP else report_of(selftest), plan
    finally:
        if selftest is not None:
            selftest.end()


def _plan_document(found: PodPlan | NotPublished, waited_seconds: float) -> dict[str, Any]:
    waited = {"waitedSeconds": round(waited_seconds, 3)}
    if isinstance(found, NotPublished):
        return {"state": found.reason, "why": found.why[:LONGEST_WHY]} | waited
    return {"state": "published", "generation": found.generation, "status": str(found.status)} | waited
