"""`python -m tests.simulation --kubeconfig FILE --folder DIR NODE=MACHINE …`: simulated nodes until SIGTERM."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from pathlib import Path

from tests.simulation.nodes import NodeSpec, Simulation


def main() -> int:
    """Runs the nodes; the file `ready` in the folder says that all of them are registered."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True, help="an administrator's kubeconfig")
    parser.add_argument("--folder", type=Path, required=True, help="where trees, sockets and logs go")
    parser.add_argument("nodes", nargs="+", metavar="NODE=MACHINE", help="a node and the machine whose files it has")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    specs = [NodeSpec(*text.split("=", 1)) for text in options.nodes]
    simulation = Simulation(options.kubeconfig, options.folder, specs)
    ready = options.folder / "ready"
    ready.unlink(missing_ok=True)
    try:
        simulation.start()
        ready.touch()
        stop.wait()
    finally:
        ready.unlink(missing_ok=True)
        simulation.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
