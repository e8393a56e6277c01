"""Debian packages that the cluster's tools come from, installed where they are missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

from tests.cluster.console import ClusterError, run, step

_QUIET = {"DEBIAN_FRONTEND": "noninteractive"}


def ensure(programs: Mapping[str, str]) -> None:
    """Installs the package of each program that PATH lacks.

    Args:
        programs: by program its package, or several ("docker-cli | docker.io"): the first that this release has.

    Raises:
        ClusterError: something is missing and this is no Debian, or we are not root.
    """
    missing = {program: package for program, package in programs.items() if shutil.which(program) is None}
    if not missing:
        return
    names = ", ".join(sorted(set(missing.values())))
    if shutil.which("apt-get") is None:
        raise ClusterError(f"{', '.join(missing)} missing (Debian: {names}), and there is no apt-get: install them")
    if os.geteuid() != 0:
        raise ClusterError(f"{', '.join(missing)} missing: run as root, or first install the Debian packages {names}")
    with step(f"installing Debian packages: {names}"):
        run(["apt-get", "update", "-q"], log="apt", environment=_QUIET)
        chosen = sorted({_first_known(packages) for packages in missing.values()})
        run(
            ["apt-get", "install", "-q", "-y", "--no-install-recommends", *chosen],
            log="apt",
            environment=_QUIET,
            limit_seconds=1200,
        )


def _first_known(packages: str) -> str:
    """The first of the packages that apt knows, else the last."""
    *preferred, last = packages.split(" | ")
    for package in preferred:
        if subprocess.run(["apt-cache", "show", package], capture_output=True, check=False).returncode == 0:
            return package
    return last
