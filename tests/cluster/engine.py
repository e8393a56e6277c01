"""The Docker engine: the one that answers, else one of our own on its own socket, started and stopped by us."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import debian, host_traces, places, process_identity
from tests.cluster.console import ClusterError, run, say, step, tail

ANSWER_SECONDS = 20.0
"""How long an engine may take to answer `docker info`; a busy one on two cores took up to 4 s."""

START_SECONDS = 90.0
"""Limit for our engine to answer; it takes about 5 s on an idle two-core machine."""

POLL_SECONDS = 0.2
"""Pause between two looks at an engine that is starting."""

STOP_SECONDS = 60.0
"""How long our engine may take to stop its containers and itself before it is killed."""

PACKAGES = {
    "docker": "docker-cli | docker.io",
    "dockerd": "docker.io",
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
    "conntrack": "conntrack",
}
"""Programs our own engine needs, and the Debian packages they come from."""

_CAP_SYS_RESOURCE = 24


@dataclass(frozen=True, slots=True)
class EnginePlace:
    """Where an engine of our own lives. `isolated`: without bridges and firewall rules, beside another engine."""

    data_root: Path
    run_dir: Path
    note: Path
    isolated: bool = False

    @property
    def socket(self) -> Path:
        """The socket it listens on."""
        return self.run_dir / "docker.sock"

    @property
    def identity(self) -> Path:
        """The file with its process identity."""
        return self.run_dir / "engine.json"


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that answers. `host` is its address, None for the docker client's own default."""

    host: str | None
    is_ours: bool

    @property
    def environment(self) -> dict[str, str]:
        """Variables that make docker and kind talk to it."""
        settings = {"DOCKER_BUILDKIT": "0"} if self.is_ours else {}
        return settings if self.host is None else {**settings, "DOCKER_HOST": self.host}

    def docker(self, *arguments: str | Path, limit_seconds: float = 600.0) -> str:
        """What `docker ARGUMENTS` writes to standard output; ClusterError where it fails."""
        return run(["docker", *arguments], log="docker", environment=self.environment, limit_seconds=limit_seconds)

    def has_image(self, image: str) -> bool:
        """Whether the engine holds an image of that name (with a digest: exactly that one)."""
        asked = subprocess.run(
            ["docker", "image", "inspect", image],
            capture_output=True,
            env={**os.environ, **self.environment},
            timeout=ANSWER_SECONDS,
            check=False,
        )
        return asked.returncode == 0

    def label(self, image: str, name: str) -> str:
        """The value of a label of an image; empty where it has none."""
        return self.docker("image", "inspect", "--format", f'{{{{index .Config.Labels "{name}"}}}}', image).strip()


def own_place() -> EnginePlace:
    """The place of the engine that clusters of this user share."""
    run_dir = Path(os.environ.get("CPUPLAN_RUN", "/run/cpuplan"))
    return EnginePlace(places.state_dir() / "engine", run_dir, places.state_dir() / "host.json")


def running() -> Engine | None:
    """The engine that answers: ours where it runs, else the docker client's default; None where neither does."""
    place = own_place()
    if is_running(place):
        return Engine(f"unix://{place.socket}", is_ours=True)
    if shutil.which("docker") and _answers(None):
        return Engine(None, is_ours=False)
    return None


def find_or_start() -> Engine:
    """The engine that answers, else our own, started now.

    Raises:
        ClusterError: none answers and ours cannot be started.
    """
    found = running()
    if found is not None:
        return found
    if os.geteuid() != 0:
        raise ClusterError("no Docker engine answers, and only root can start one: start Docker, or run this as root")
    debian.ensure(PACKAGES)
    return running() or start(own_place())


def is_running(place: EnginePlace) -> bool:
    """Whether our engine at that place runs and answers."""
    identity = process_identity.read(place.identity)
    return identity is not None and identity.is_running() and _answers(f"unix://{place.socket}")


def start(place: EnginePlace) -> Engine:
    """Our engine at that place, started afresh: what a killed one left behind is removed first.

    Raises:
        ClusterError: it ended or did not answer in time; the text ends with its log's last lines.
    """
    if place.data_root.exists() or place.run_dir.exists():
        with step("removing what a killed run left behind"):
            erase(place)
    host_traces.look().write(place.note)
    place.data_root.mkdir(parents=True)
    place.run_dir.mkdir(parents=True)
    log = places.logs_dir() / "dockerd.log"
    with step(f"starting a Docker engine on {place.socket}"):
        daemon = process_identity.start_daemon(_command(place), log)
        daemon.write(place.identity)
        deadline = time.monotonic() + START_SECONDS
        while not _answers(f"unix://{place.socket}"):
            if not daemon.is_running() or time.monotonic() > deadline:
                ending = "does not answer" if daemon.is_running() else "has ended"
                raise ClusterError(f"dockerd {ending}; the last lines of {log}:\n{tail(log.read_text('utf-8'))}")
            time.sleep(POLL_SECONDS)
    return Engine(f"unix://{place.socket}", is_ours=True)


def stop(place: EnginePlace) -> None:
    """Stops our engine, by its identity, and erases every trace of it. Nothing happens where there is none."""
    if not place.data_root.exists() and not place.run_dir.exists():
        return
    with step("stopping our Docker engine and removing its traces"):
        identity = process_identity.read(place.identity)
        if identity is not None:
            process_identity.end(identity, limit_seconds=STOP_SECONDS)
        erase(place)


def erase(place: EnginePlace) -> None:
    """Removes processes, mounts, bridges, firewall rules, cgroups and folders of an engine that is not needed."""
    note = host_traces.read_note(place.note)
    if note is None:
        say("    no note of the machine's earlier settings is left: sysctls stay as they are")
        note = host_traces.HostNote({}, {}, [], list(host_traces.FIXED_PLACES))
    host_traces.erase_engine(place.data_root, place.run_dir, note)
    if not place.isolated:
        host_traces.erase_network(note)
    host_traces.restore_sysctls(note)
    place.note.unlink(missing_ok=True)


def _command(place: EnginePlace) -> list[str]:
    """dockerd's command line. An own configuration file, so that the machine's daemon.json has no say."""
    configuration = place.run_dir / "daemon.json"
    configuration.write_text("{}", encoding="utf-8")
    command = [
        "dockerd",
        f"--config-file={configuration}",
        f"--data-root={place.data_root}",
        f"--exec-root={place.run_dir / 'exec'}",
        f"--pidfile={place.run_dir / 'dockerd.pid'}",
        f"--host=unix://{place.socket}",
        "--log-level=warn",
    ]
    if place.isolated:
        command += ["--bridge=none", "--iptables=false", "--ip-forward=false"]
    if not _may_raise_limits():
        runtime = place.run_dir / "within-bounds-runc"
        shutil.copy(places.HERE / "node" / "within-bounds-runc", runtime)
        command += [f"--add-runtime=within-bounds={runtime}", "--default-runtime=within-bounds"]
    return command


def _may_raise_limits() -> bool:
    """Whether CAP_SYS_RESOURCE is in our bounding set, so that privileged containers can have it."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    bounding = next(line.split()[1] for line in status.splitlines() if line.startswith("CapBnd:"))
    return bool(int(bounding, 16) >> _CAP_SYS_RESOURCE & 1)


def _answers(host: str | None) -> bool:
    """Whether an engine answers there."""
    environment = dict(os.environ) if host is None else {**os.environ, "DOCKER_HOST": host}
    try:
        asked = subprocess.run(
            ["docker", "version", "--format", "{{.Server.Version}}"],
            capture_output=True,
            env=environment,
            timeout=ANSWER_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return asked.returncode == 0
