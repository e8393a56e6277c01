"""`python -m tests.cluster`: the cluster from the command line, for the Makefile and for people."""

from __future__ import annotations

import argparse
import sys

from tests.cluster import go_programs, kindcluster
from tests.cluster.console import ClusterError, say


def main(arguments: list[str] | None = None) -> int:
    """Does what is asked; returns the exit code (1 after a failed step, whose sentence is printed)."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--name", default=kindcluster.TEST_CLUSTER, help="the cluster (default: %(default)s)")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("up", help="make what is missing and start the cluster")
    verbs.add_parser("down", help="delete the cluster; with the last one, our Docker engine")
    verbs.add_parser("status", help="say whether the cluster runs, and its nodes")
    verbs.add_parser("kubeconfig", help="print the path of the administrator's kubeconfig")
    verbs.add_parser("env", help="print shell lines for eval: KUBECONFIG, DOCKER_HOST and PATH")
    verbs.add_parser("programs", help="build all programs and print their folder")
    chosen = parser.parse_args(arguments)
    try:
        return _do(chosen.verb, chosen.name)
    except ClusterError as error:
        say(f"error: {error}")
        return 1


def _do(verb: str, name: str) -> int:
    if verb == "up":
        kindcluster.up(name)
        say(f'cluster {name} runs; use it with: eval "$({sys.executable} -m tests.cluster --name {name} env)"')
        return 0
    if verb == "down":
        kindcluster.down(name)
        return 0
    if verb == "programs":
        sys.stdout.write(f"{go_programs.built(go_programs.ALL)}\n")
        return 0
    found = kindcluster.existing(name)
    if found is None:
        say(f"cluster {name} does not run; start it with: python -m tests.cluster --name {name} up")
        return 1
    if verb == "kubeconfig":
        sys.stdout.write(f"{found.kubeconfig}\n")
    elif verb == "env":
        sys.stdout.write(f"export KUBECONFIG={found.kubeconfig}\nexport PATH={found.programs}:$PATH\n")
        for variable, value in found.engine.environment.items():
            sys.stdout.write(f"export {variable}={value}\n")
    else:
        sys.stdout.write(found.kubectl("get", "nodes", "-o", "wide"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
