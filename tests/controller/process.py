"""The operator as a process of its own, as a container runs it: under a user without a name, warnings as errors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.processes import running_process, wait_until_ready

ROOT = Path(__file__).parents[2]
NAMESPACE = "cpuplan"

_NAMELESS = "import pwd; pwd.getpwuid = {}.__getitem__"
_START = f"{_NAMELESS}; import sys; from cpuplan.cli.main import main; sys.exit(main())"


QUICKLY_LOST = ("--lease-seconds", "3")
"""Flags for tests of the Lease itself; for others a loaded machine could take longer over one renewal."""


@contextmanager
def running_operator(
    kubeconfig: Path, name: str, log: Path, *flags: str, identity: str = "operator-0"
) -> Iterator[subprocess.Popen[bytes]]:
    """The operator, leading or standing by, with a ConfigMap and a Lease of that name, and quick to write.

    Raises:
        NotReadyError: it ended before, or came to nothing; with the end of its log.
    """
    arguments = [
        *("--namespace", NAMESPACE, "--configmap", name, "--lease", name, "--identity", identity),
        *("--kubeconfig", str(kubeconfig), "--metrics-address", "127.0.0.1:0"),
        *("--write-interval-seconds", "0.1", *flags),
    ]
    unset = [f"--unset={variable}" for variable in ("LOGNAME", "USER", "LNAME", "USERNAME")]
    environment = [*unset, f"PYTHONPATH={ROOT / 'operator'}{os.pathsep}{ROOT}"]
    command = ["env", *environment, sys.executable, "-W", "error", "-c", _START, "operator", *arguments]
    with running_process(command, log) as process:
        wait_until_ready(process, log, lambda: _is_candidate(log))
        yield process


def _is_candidate(log: Path) -> bool:
    said = log.read_text(errors="replace")
    return " leading lease=" in said or " standing by lease=" in said
