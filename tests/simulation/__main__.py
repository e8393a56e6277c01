"""`python -m tests.simulation --kubeconfig FILE --folder DIR NODE=MACHINE:PORT …`: simulated nodes until SIGTERM."""

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
    parser.add_argument(
        "nodes",
        nargs="+",
        type=_spec,
        metavar="NODE=MACHINE:PORT",
        help="a node, the machine whose files it has, and the port of its agent's pages on loopback",
    )
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    simulation = Simulation(options.kubeconfig, options.folder, options.nodes)
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


def _spec(text: str) -> NodeSpec:
    node, _, rest = text.partition("=")
    machine, _, port = rest.partition(":")
    return NodeSpec(node, machine, int(port))


if __name__ == "__main__":
    sys.exit(main())
