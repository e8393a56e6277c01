"""`python -m tests.cluster`: the cluster from the command line, for the Makefile and for people."""

from __future__ import annotations

import argparse
import sys

from tests.cluster import fakegpus, go_programs, kindcluster, places, productimage
from tests.cluster.console import ClusterError, say
from tests.cluster.engine import Engine, find_or_start
from tests.cluster.kindcluster import KindCluster


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
    verbs.add_parser("engine", help="print shell lines for eval that point docker at the engine that is used")
    image = verbs.add_parser("image", help="build the product image; load the default one into the cluster that runs")
    image.add_argument("--base", help="base image (default: python:3-slim, else one from Debian packages)")
    image.add_argument("--tag", default=productimage.IMAGE, help="name of the image (default: %(default)s)")
    verbs.add_parser("gpus", help="make the cluster's workers GPU nodes with the fake device plugin")
    verbs.add_parser("programs", help="build all programs and print their folder")
    chosen = parser.parse_args(arguments)
    try:
        return _do(chosen)
    except ClusterError as error:
        say(f"error: {error}")
        return 1


def _do(chosen: argparse.Namespace) -> int:
    name = chosen.name
    match chosen.verb:
        case "up":
            kindcluster.up(name)
            say(f'cluster {name} runs; use it with: eval "$(python3 -m tests.cluster --name {name} env)"')
        case "down":
            kindcluster.down(name)
        case "programs":
            sys.stdout.write(f"{go_programs.built(go_programs.ALL)}\n")
        case "image":
            image = productimage.ensure(find_or_start(), image=chosen.tag, base=chosen.base)
            running = kindcluster.existing(name) if image == productimage.IMAGE else None
            if running is not None:
                running.load_image(image)
            sys.stdout.write(f"{image}\n")
        case "engine":
            _point_at(find_or_start())
        case verb:
            found = kindcluster.existing(name)
            if found is None:
                raise ClusterError(
                    f"cluster {name} does not run; start it with: python3 -m tests.cluster --name {name} up"
                )
            _use(verb, found)
    return 0


def _point_at(engine: Engine) -> None:
    for variable, value in engine.environment.items():
        sys.stdout.write(f"export {variable}={value}\n")


def _use(verb: str, cluster: KindCluster) -> None:
    """Does what needs a running cluster."""
    match verb:
        case "gpus":
            image = productimage.ensure(cluster.engine)
            cluster.load_image(image)
            fakegpus.install(cluster.kubectl, image)
        case "kubeconfig":
            sys.stdout.write(f"{cluster.kubeconfig}\n")
        case "env":
            sys.stdout.write(f"export KUBECONFIG={cluster.kubeconfig}\n")
            sys.stdout.write(f"export PATH={places.HERE / 'bin'}:{cluster.programs}:$PATH\n")
            _point_at(cluster.engine)
        case _:
            sys.stdout.write(cluster.kubectl("get", "nodes", "-o", "wide"))


if __name__ == "__main__":
    sys.exit(main())
