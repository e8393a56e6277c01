"""Writes one of the project's own machines for a demo or a look.

python3 -m tests.machines.tree NAME FOLDER       # FOLDER/sys, FOLDER/proc (PYTHONPATH=operator:.)

The package itself does not import this module, so that it can be run.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .description import machine_names
from .writing import write_machine


def main(arguments: list[str]) -> int:
    """Writes one machine; the exit status is 2 where the arguments name none."""
    if len(arguments) != 2 or arguments[0] not in machine_names():
        sys.stderr.write(f"usage: python3 -m tests.machines.tree NAME FOLDER; names: {', '.join(machine_names())}\n")
        return 2
    write_machine(arguments[0], Path(arguments[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
