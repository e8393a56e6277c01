"""kubectl and helm against one cluster."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import go_programs, places
from tests.cluster.console import run

_WANTED = {
    "kind": (["version"], (0, 33)),
    "kubectl": (["version", "--client"], (1, 33)),
    "helm": (["version", "--short"], (3, 15)),
}
"""How each program tells its version, and from which one on the one on PATH is used as it is."""


@dataclass(frozen=True, slots=True)
class Clients:
    """The folder with the programs, and the kubeconfig they use."""

    programs: Path
    kubeconfig: Path

    def kubectl(self, *arguments: str | Path, limit_seconds: float = 120.0) -> str:
        """What `kubectl ARGUMENTS` writes to standard output; ClusterError where it fails."""
        command = [self.programs / "kubectl", f"--kubeconfig={self.kubeconfig}", *arguments]
        return run(command, log="kubectl", limit_seconds=limit_seconds)

    def helm(self, *arguments: str | Path, limit_seconds: float = 300.0) -> str:
        """What `helm ARGUMENTS` writes to standard output; ClusterError where it fails."""
        command = [self.programs / "helm", f"--kubeconfig={self.kubeconfig}", *arguments]
        return run(command, log="helm", limit_seconds=limit_seconds)


def client_programs() -> Path:
    """A folder with kind, kubectl and helm: those on PATH where all are recent enough, else built ones."""
    found = {name: shutil.which(name) for name in _WANTED}
    for name, (arguments, minimum) in _WANTED.items():
        path = found[name]
        if path is None or _version([path, *arguments]) < minimum:
            return go_programs.built(go_programs.CLIENTS)
    folder = places.state_dir() / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in found.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(str(path))
    return folder


def _version(command: list[str]) -> tuple[int, ...]:
    """Major and minor number in what the command prints; (0, 0) where there is none."""
    printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = re.search(r"v(\d+)\.(\d+)", printed)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)
