"""Ring 2: the README's commands, typed as they stand there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.cluster import fakegpus
from tests.cluster.fixture import Cluster
from tests.endtoend.conftest import until
from tests.readme.console import CHECKOUT, Command, lacking, outputs, section_commands

pytestmark = pytest.mark.commands

DEMO_SECONDS = 900
EXAMPLE_IMAGE = "registry.example.com/cpuplan"


@pytest.fixture
def left_as_installed(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster without our chart; afterwards with it, as the other tests want it."""
    cluster.make_gpu_nodes()
    cluster.uninstall_chart()
    yield cluster
    cluster.kubectl("delete", "deployment", "llm", "--ignore-not-found", "--wait")
    cluster.uninstall_chart()
    cluster.install_chart(files=[fakegpus.CHART_VALUES])


def check(commands: list[Command], results: list[str]) -> None:
    assert [(c.line, missing) for c, text in zip(commands, results, strict=True) if (missing := lacking(c, text))] == []


def test_a_machine_without_a_cluster_is_shown_and_planned() -> None:
    commands = section_commands("On one machine")
    try:
        check(commands, outputs(commands, environment={"PYTHONPATH": ""}, limit_seconds=240))
    finally:
        shutil.rmtree(CHECKOUT / "build" / "venv", ignore_errors=True)
        shutil.rmtree(CHECKOUT / "build" / "h100-server", ignore_errors=True)


@pytest.mark.timeout(DEMO_SECONDS + 60)
def test_the_demo_runs_and_goes_without_a_trace() -> None:
    commands = section_commands("See it work")
    assert commands[-1].line == "make demo-down"
    check(commands, outputs(commands, environment={}, limit_seconds=DEMO_SECONDS))


def test_the_chart_is_installed_and_an_example_gets_its_plan(left_as_installed: Cluster) -> None:
    cluster = left_as_installed
    if cluster.kind is None:
        pytest.skip("needs a cluster of our own, into which an image can be loaded: run `make cluster-up`")
    image = cluster.image()
    cluster.kind.engine.docker("tag", image, "cpuplan:0.1.0")
    cluster.load_image("cpuplan:0.1.0")
    commands = [replace(c, line=c.line.replace(EXAMPLE_IMAGE, "cpuplan")) for c in section_commands("On your cluster")]
    clients = cluster.clients
    environment = {"KUBECONFIG": str(clients.kubeconfig), "PATH": f"{clients.programs}:{os.environ['PATH']}"}
    check(commands, outputs(commands, environment=environment, limit_seconds=240))

    def statuses() -> list[str]:
        pods = cluster.get("pods", "--selector=app=llm")["items"]
        return [pod["metadata"].get("annotations", {}).get("cpuplan.dev/status", "") for pod in pods]

    until(lambda: statuses() and all(statuses()), "the example's pods have their plan")
