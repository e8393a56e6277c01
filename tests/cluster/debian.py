"""Debian packages that the cluster's tools come from, installed where they are missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from tests.cluster.console import ClusterError, run, step

_QUIET = {"DEBIAN_FRONTEND": "noninteractive"}


def ensure(programs: Mapping[str, str]) -> None:
    """Installs the package of each program (program -> package) that PATH lacks.

    Raises:
        ClusterError: something is missing and this is no Debian, or we are not root.
    """
    missing = sorted({package for program, package in programs.items() if shutil.which(program) is None})
    if not missing:
        return
    names = " ".join(missing)
    if shutil.which("apt-get") is None:
        raise ClusterError(
            f"programs of the Debian packages {names} are missing, and there is no apt-get: install them"
        )
    if os.geteuid() != 0:
        raise ClusterError(f"Debian packages are missing: run as root, or first: apt-get install {names}")
    with step(f"installing Debian packages: {names}"):
        run(["apt-get", "update", "-q"], log="apt", environment=_QUIET)
        run(
            ["apt-get", "install", "-q", "-y", "--no-install-recommends", *missing],
            log="apt",
            environment=_QUIET,
            limit_seconds=1200,
        )
