"""`python -m tests.demo up|down`."""

from __future__ import annotations

import argparse
import sys

from tests.cluster.console import ClusterError, say
from tests.demo import story


def main() -> int:
    """Runs or removes the demo; 1 after a failed step, whose sentence is printed."""
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description=__doc__)
    parser.add_argument("verb", choices=("up", "down"), help="run the demo, or remove every trace of it")
    verb = parser.parse_args().verb
    try:
        (story.up if verb == "up" else story.down)()
    except ClusterError as error:
        say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
