"""The command that starts this package's program in a new process."""

import sys
from pathlib import Path


def program_command(*arguments: str) -> list[str]:
    """The command that runs this very package with the arguments, whatever the caller's sys.path is made of."""
    root = str(Path(__file__).resolve().parents[1])
    start = (
        f"import sys; sys.path.append({root!r}); import runpy; "
        "runpy.run_module('hostflag_native', run_name='__main__', alter_sys=True)"
    )
    return [sys.executable, "-P", "-c", start, *arguments]
