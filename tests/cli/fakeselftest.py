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
if {hangs!r}:
    time.sleep(3600)
os._exit({exit_code!r})
"""


def install(folder: Path, exit_code: int, line: str, details: dict[str, Any], *, hangs: bool = False) -> Path:
    """Writes the stand-in below `folder`; returns the file to which it logs its arguments, one JSON list per call."""
    package = folder / "hostflag_native"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    log = folder / "calls.jsonl"
    output = f"{line}\n{json.dumps(details, indent=1)}\n"
    (package / "__main__.py").write_text(
        _MAIN.format(log=str(log), output=output, hangs=hangs, exit_code=exit_code), encoding="utf-8"
    )
    return log


def calls(log: Path) -> list[list[str]]:
    """The arguments of each call."""
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
