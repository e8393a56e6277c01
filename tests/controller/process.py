"""The operator as a process of its own, as a container runs it: under a user without a name, warnings as errors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.processes import running_process

ROOT = Path(__file__).parents[2]
NAMESPACE = "cpuplan"

_NAMELESS = "import pwd; pwd.getpwuid = {}.__getitem__"
_START = f"{_NAMELESS}; import sys; from cpuplan.cli.main import main; sys.exit(main())"


@contextmanager
def running_operator(
    kubeconfig: Path, name: str, log: Path, *flags: str, identity: str = "operator-0"
) -> Iterator[subprocess.Popen[bytes]]:
    """The operator at work, with a ConfigMap and a Lease of that name, quick to write and to lose its Lease."""
    arguments = [
        *("--namespace", NAMESPACE, "--configmap", name, "--lease", name, "--identity", identity),
        *("--kubeconfig", str(kubeconfig), "--metrics-address", "127.0.0.1:0"),
        *("--write-interval-seconds", "0.1", "--lease-seconds", "3", *flags),
    ]
    unset = [f"--unset={variable}" for variable in ("LOGNAME", "USER", "LNAME", "USERNAME")]
    environment = [*unset, f"PYTHONPATH={ROOT / 'operator'}{os.pathsep}{ROOT}"]
    command = ["env", *environment, sys.executable, "-W", "error", "-c", _START, "operator", *arguments]
    with running_process(command, log) as process:
        yield process
