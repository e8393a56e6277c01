"""The operator as a process while its watch fails: what kopf survives, and what ends the process."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from cpuplan.cli.main import main
from cpuplan.controller.leader import Leadership
from tests.controller.pods import planned
from tests.controller.process import NAMESPACE, running_operator
from tests.fakeapi import FakeApi
from tests.waiting import until

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/cpuplan"
PODS = "/api/v1/namespaces/demo/pods"


@pytest.fixture
def api(api: FakeApi) -> FakeApi:
    """A cluster with one node and two planned pods."""
    api.put("/api/v1/nodes/gpu-1", {"status": {}})
    api.put(f"{PODS}/stays", planned("stays"))
    api.put(f"{PODS}/goes", planned("goes"))
    return api


def indexed(api: FakeApi) -> set[str]:
    """The pods in the index."""
    stored: dict[str, Any] = api.object(f"/api/v1/namespaces/{NAMESPACE}/configmaps/cpuplan") or {}
    return {name for text in stored.get("data", {}).values() for name in json.loads(text)}


def test_a_watch_that_is_too_old_is_opened_anew_and_the_next_listing_finds_what_it_lost(
    api: FakeApi, kubeconfig: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with running_operator(kubeconfig, "cpuplan", log, "--resync-seconds", "0.5"):
        api.wait_for_watches(limit_seconds=20)
        until(lambda: indexed(api) == {"demo/stays", "demo/goes"})
        api.freeze_watches()
        api.remove(f"{PODS}/goes")
        api.expire_history()
        api.thaw_watches_of_the_future_only()
        api.send_status_in_watches(410, "Expired")
        until(lambda: len([r for r in api.requests_of("GET", "/api/v1/pods") if r.is_watch]) == 2)
        api.put(f"{PODS}/comes", planned("comes"))
        until(lambda: indexed(api) == {"demo/stays", "demo/comes"})
        until(lambda: "missed_changes=1" in log.read_text())


def test_an_error_in_the_watch_ends_the_process_in_order(api: FakeApi, kubeconfig: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running_operator(kubeconfig, "cpuplan", log) as process:
        api.wait_for_watches(limit_seconds=20)
        until(lambda: indexed(api) == {"demo/stays", "demo/goes"})
        api.send_status_in_watches(500, "InternalError")
        assert process.wait(20) == 1
    assert "ERROR cpuplan.controller.process the watch of pods ended: " in log.read_text()
    lease = api.object(LEASE)
    assert lease is not None
    assert lease["spec"]["holderIdentity"] == ""


def test_a_process_that_is_told_to_end_while_its_watch_starts_leaves_it_at_once(
    api: FakeApi, kubeconfig: Path, tmp_path: Path
) -> None:
    """kopf would finish: wait for its own first requests, and try them again without their connection."""
    log = tmp_path / "log"
    api.fail(503, times=10_000, method="GET", path_part="/api/v1")
    with running_operator(kubeconfig, "cpuplan", log, "--log-level", "debug") as process:
        until(lambda: "Request attempt #1/9 failed" in log.read_text())
        process.terminate()
        assert process.wait(20) == 0
    assert "Root tasks are stopped: cancelling" in log.read_text()
    lease = api.object(LEASE)
    assert lease is not None
    assert lease["spec"]["holderIdentity"] == ""


def test_a_signal_that_comes_as_the_lease_is_won_gives_it_back(
    api: FakeApi, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, restored_logging: None
) -> None:
    monkeypatch.setattr(Leadership, "keep", lambda *_: sys.exit(0))
    flags = ["--namespace", NAMESPACE, "--kubeconfig", str(kubeconfig), "--metrics-address", "127.0.0.1:0"]
    assert main(["operator", *flags, "--lease", "cpuplan"]) == 0
    lease = api.object(LEASE)
    assert lease is not None
    assert lease["spec"]["holderIdentity"] == ""
