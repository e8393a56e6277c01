"""A run that was killed at any point never hinders the next, and hurts nobody else."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import debian, engine, places, process_identity
from tests.cluster.console import ClusterError
from tests.cluster.engine import EnginePlace

pytestmark = pytest.mark.cluster

NEEDS_ROOT = "needs root, to start a Docker engine of its own: run the tests as root"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EnginePlace]:
    """Folders for an engine without a network, beside any other; nothing of it is left afterwards."""
    if os.geteuid() != 0:
        pytest.skip(NEEDS_ROOT)
    debian.ensure(engine.PACKAGES)
    monkeypatch.setenv("CPUPLAN_STATE", str(tmp_path))
    run_dir = Path(f"/run/cpuplan-test-{os.getpid()}")
    place = EnginePlace(tmp_path / "engine", run_dir, tmp_path / "host.json", isolated=True)
    yield place
    engine.stop(place)
    assert mounts_below(place) == []


def mounts_below(place: EnginePlace) -> list[str]:
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()]
    return [point for point in points if point.startswith((str(place.data_root), str(place.run_dir)))]


KILLED_ENGINE_WITH_A_NETWORK = """
import os, signal, subprocess, sys
from pathlib import Path
from tests.cluster import engine, process_identity
root, run_dir = Path(sys.argv[1]), Path(sys.argv[2])
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
place = engine.EnginePlace(root / "engine", run_dir, root / "host.json")
engine.start(place).docker("network", "create", "some-network")
os.kill(process_identity.read(place.identity).pid, signal.SIGKILL)
engine.erase(place)
subprocess.run(["ip", "-brief", "link"], check=True)
subprocess.run(["iptables-save"], check=True)
"""


def test_a_killed_engines_bridges_and_firewall_rules_are_removed(place: EnginePlace) -> None:
    folders = [str(place.data_root.parent), str(place.run_dir)]
    left = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", KILLED_ENGINE_WITH_A_NETWORK, *folders],
        check=True,
        capture_output=True,
        text=True,
        cwd=places.CHECKOUT,
    ).stdout
    words = set(left.replace("@", " ").split())
    assert {"lo", ":FORWARD", "ACCEPT"} <= words
    assert [word for word in words if word.startswith(("docker", "br-", ":DOCKER", "DROP", "-A"))] == []


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with an engine."""
    process = subprocess.Popen(["sleep", "300"])
    yield process
    assert process.poll() is None
    process.kill()
    process.wait()


def test_an_engine_that_was_killed_with_all_its_mounts_is_replaced(place: EnginePlace) -> None:
    engine.start(place)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place.data_root / "overlay2"], check=True)
    killed = process_identity.read(place.identity)
    assert killed is not None
    os.kill(killed.pid, signal.SIGKILL)
    os.waitpid(killed.pid, 0)
    assert engine.start(place).docker("ps", "--quiet", "--all") == ""
    assert len([point for point in mounts_below(place) if point.endswith("overlay2")]) == 0


def test_stale_files_that_name_a_bystander_stop_nothing_and_hurt_nobody(
    place: EnginePlace, bystander: subprocess.Popen[bytes]
) -> None:
    place.data_root.mkdir()
    containerd = place.run_dir / "exec" / "containerd"
    containerd.mkdir(parents=True)
    for pid_file in (place.run_dir / "dockerd.pid", containerd / "containerd.pid"):
        pid_file.write_text(str(bystander.pid), encoding="utf-8")
    theirs = process_identity.identify(bystander.pid)
    assert theirs is not None
    dataclasses.replace(theirs, start_ticks=theirs.start_ticks - 1).write(place.identity)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(place.socket))
    assert not engine.is_running(place)
    assert engine.start(place).docker("ps", "--quiet") == ""


def test_a_stopped_engine_leaves_no_file_and_no_process(place: EnginePlace) -> None:
    engine.start(place)
    engine.stop(place)
    left = [
        pid for pid in process_identity.all_pids() if str(place.run_dir) in " ".join(process_identity.command_line(pid))
    ]
    assert left == []
    assert [path for path in (place.data_root, place.run_dir, place.note) if path.exists()] == []


def test_an_engine_that_does_not_start_shows_the_end_of_its_log(
    place: EnginePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = place.data_root.parent / "bin"
    broken.mkdir()
    (broken / "dockerd").write_text("#!/bin/sh\necho no space left on device; exit 1\n", encoding="utf-8")
    (broken / "dockerd").chmod(0o755)
    monkeypatch.setenv("PATH", f"{broken}:{os.environ['PATH']}")
    with pytest.raises(ClusterError, match=r"dockerd has ended; .*\n    no space left on device"):
        engine.start(place)
    shutil.rmtree(broken)
