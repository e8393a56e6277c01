"""A stand-in for `python -m hostflag_native selftest` that says what a test wants said.

`install` writes it as a package of that name; the folder goes first on PYTHONPATH.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_MAIN = """
import json, os, sys, time
words = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps(words) + "\\n")
sys.stdout.write({output!r})
sys.stdout.flush()
os.write(2, {noise!r})
if {hangs!r}:
    time.sleep(3600)
os._exit({exit_code!r})
"""

DRIVER_NOISE = b"g\xe9n\xe9ral: 0 errors\n"
"""What a driver's library may write to standard error: no UTF-8."""


def install(folder: Path, exit_code: int, line: str, details: dict[str, Any], *, hangs: bool = False) -> Path:
    """Writes the stand-in below `folder`; returns the file to which it logs its arguments, one JSON list per call."""
    package = folder / "hostflag_native"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    log = folder / "calls.jsonl"
    output = f"{line}\n{json.dumps(details, indent=1)}\n"
    (package / "__main__.py").write_text(
        _MAIN.format(log=str(log), output=output, noise=DRIVER_NOISE, hangs=hangs, exit_code=exit_code),
        encoding="utf-8",
    )
    return log


def calls(log: Path) -> list[list[str]]:
    """The arguments of each call."""
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def running(folder: Path) -> list[int]:
    """The process ids of stand-ins from that folder that still run."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            environment = (process / "environ").read_bytes() if process.name.isdigit() else b""
            state = (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] if environment else ""
        except OSError:
            continue
        if str(folder).encode() in environment and state not in "ZX":
            found.append(int(process.name))
    return found
