"""What the tests of the commands share: running one as a user would, and the volume of a pod on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cpuplan.cli.main import main
from cpuplan.host.identity import read_boot_id
from cpuplan.host.root import HostRoot
from cpuplan.host.sysfs import THIS_HOST
from cpuplan.inprocess.launchers import POOL_CPUS_VARIABLE
from cpuplan.inprocess.published import CONTAINER_VARIABLE
from cpuplan.model.podplan import PodPlan
from cpuplan.model.pools import THREAD_VARIABLES
from tests.cli.answers import Answer
from tests.conftest import TreeOf
from tests.podvolume import PodVolume, plan_of_pod

SERVER = "h100-server"
LIMIT_SECONDS = 60
REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = f"{REPOSITORY / 'operator'}:{REPOSITORY}"
"""PYTHONPATH of the command."""


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the test's own environment decides what a command does."""
    openmp = ["OMP_PROC_BIND", "OMP_PLACES", POOL_CPUS_VARIABLE]
    for name in [CONTAINER_VARIABLE, *openmp, *(v.name for v in THREAD_VARIABLES)]:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cpuplan(capfd: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Runs a command line in this process: `cpuplan("show", "-o", "json")`."""

    def call(*words: object) -> Answer:
        capfd.readouterr()
        exit_code = main([str(word) for word in words])
        output, complaint = capfd.readouterr()
        return Answer(exit_code, output, complaint)

    return call


@pytest.fixture
def cpuplan_process() -> Callable[..., Answer]:
    """Runs a command line as a process of its own, as a user does; keyword arguments are environment variables."""

    def call(*words: object, **variables: str) -> Answer:
        done = subprocess.run(
            [sys.executable, "-m", "cpuplan", *map(str, words)],
            env=os.environ | {"PYTHONPATH": SOURCES} | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def server(own_machine: TreeOf) -> HostRoot:
    """A two-socket server with eight H100."""
    return own_machine(SERVER)


@pytest.fixture
def volume(tmp_path: Path) -> PodVolume:
    """An empty folder for a plan volume."""
    return PodVolume(tmp_path / "cpuplan")


@pytest.fixture(autouse=True)
def no_limit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan counts on no more than this process's own limit: the container that runs the tests may have one."""
    monkeypatch.setattr("cpuplan.inprocess.published.visible_quota", lambda _: None)


@pytest.fixture
def unlimited(tmp_path: Path) -> dict[str, str]:
    """Variables for `cpuplan_process` that do the same in a process of its own."""
    folder = tmp_path / "unlimited"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import cpuplan.inprocess.published\ncpuplan.inprocess.published.visible_quota = lambda _: None\n"
    )
    return {"PYTHONPATH": f"{folder}:{SOURCES}"}


@pytest.fixture
def plan_here(server: HostRoot) -> PodPlan:
    """The plan of a pod with two H100 and a quota of 24 CPUs, valid for the boot of the machine that runs the tests."""
    return replace(plan_of_pod(SERVER, server, gpus=(0, 4), quota=24.0), boot_id=read_boot_id(THIS_HOST))
