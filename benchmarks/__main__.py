"""Runs the benchmarks that the arguments name, all without any, and prints their figures."""

from __future__ import annotations

import sys

from . import importing, planning, reading

ALL = {"importing": importing.figures, "reading": reading.figures, "planning": planning.figures}


def main(names: list[str]) -> int:
    """Prints the figures; the exit status is 1 where one exceeds its bound, 2 where a name is unknown."""
    unknown = [name for name in names if name not in ALL]
    if unknown:
        sys.stderr.write(f"no benchmark {', '.join(unknown)}; there are {', '.join(ALL)}\n")
        return 2
    exceeded = []
    for name in names or ALL:
        for figure in ALL[name]():
            sys.stdout.write(f"{figure}\n")
            sys.stdout.flush()
            exceeded += [] if figure.is_met else [figure.name]
    if exceeded:
        sys.stderr.write(f"over the bound: {'; '.join(exceeded)}\n")
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
