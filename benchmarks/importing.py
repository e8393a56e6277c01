"""Importing the library, beyond starting the interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .timing import Figure, best_ms

OPERATOR = Path(__file__).parents[1] / "operator"


def figures() -> list[Figure]:
    """The time that `import cpuplan` adds to a Python program, and with every public name loaded."""
    nothing = _run_ms("pass")
    bare = _run_ms("import cpuplan")
    names = _run_ms("from cpuplan import *")
    return [
        Figure("import cpuplan, beyond the interpreter", bare - nothing, "ms", 30),
        Figure("import cpuplan and all its names, beyond the interpreter", names - nothing, "ms"),
    ]


def _run_ms(program: str) -> float:
    script = f"import sys; sys.path.insert(0, {str(OPERATOR)!r}); {program}"
    return best_ms(lambda: subprocess.run([sys.executable, "-I", "-S", "-c", script], check=True), 15)
