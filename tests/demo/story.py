"""The demo, step by step: cluster, chart, GPUs, pods, plans; and its end, which leaves the build cache alone."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.cluster import fakegpus, kindcluster, places, process_identity, productimage
from tests.cluster.console import ClusterError, say, step, tail
from tests.cluster.kindcluster import DEMO_CLUSTER, KindCluster
from tests.cluster.process_identity import ProcessIdentity

HERE = Path(__file__).resolve().parent
NAMESPACE = "demo"
RELEASE_NAMESPACE = "cpuplan"
SIMULATED = {"sim-h100": "h100-server", "sim-gb200": "gb200-memory-nodes", "sim-nps4": "nps4-four-gpus"}
"""Simulated nodes and the machines (tests/machines) whose files they have."""

PLANNED_SECONDS = 180
"""Limit for all pods to be planned; it takes seconds once the images are there."""

COLUMNS = ",".join(
    (
        "NAME:.metadata.name",
        "NODE:.spec.nodeName",
        "SETTING:.metadata.annotations.step_thread_core",
        r"STATUS:.metadata.annotations.cpuplan\.dev/status",
        r"STEP-CPUS:.metadata.annotations.cpuplan\.dev/step-cpus",
        r"RESULT:.metadata.annotations.cpuplan\.dev/result-cpu",
        r"USABLE:.metadata.annotations.cpuplan\.dev/usable-cpus",
        r"WHY:.metadata.annotations.cpuplan\.dev/why",
    )
)


def up() -> None:
    """Runs the demo and prints what it made.

    Raises:
        ClusterError: a step failed; its text says which and why.
    """
    began = time.monotonic()
    cluster = kindcluster.up(DEMO_CLUSTER)
    image = productimage.ensure(cluster.engine)
    cluster.load_image(image)
    fakegpus.install(cluster.kubectl, image, devices=1)
    _install_chart(cluster, image)
    _start_simulation(cluster)
    _make_pods(cluster)
    _wait_for_plans(cluster)
    _show(cluster)
    say(f"\nThe demo took {time.monotonic() - began:.0f} s and goes on running. To use it:")
    say(f'  eval "$(python3 -m tests.cluster --name {DEMO_CLUSTER} env)"    # kubectl, helm, kind and cpuplan')
    say("  cpuplan explain real-template -n demo                         # why, by the agent of the pod's node")
    say(f"  cpuplan explain llm-0 -n demo --agent-url {_agent_url('sim-h100')}")
    say("  kubectl annotate pod -n demo real-later step_thread_core-      # all of our annotations go with it")
    say("To remove it: make demo-down")


def down() -> None:
    """Ends the demo: its simulated nodes, its cluster, and our Docker engine with the last cluster."""
    _stop_simulation()
    kindcluster.down(DEMO_CLUSTER)


def _install_chart(cluster: KindCluster, image: str) -> None:
    with step("installing charts/cpuplan with helm"), tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(productimage.chart_values(cluster.engine, image), file)
        file.flush()
        cluster.helm(
            "upgrade", "--install", "cpuplan", places.CHECKOUT / "charts" / "cpuplan",
            "--namespace", RELEASE_NAMESPACE, "--create-namespace", "--values", file.name,
            "--values", fakegpus.CHART_VALUES, "--wait", "--timeout", "3m",
        )  # fmt: skip


def _make_pods(cluster: KindCluster) -> None:
    with step("creating annotated pods, and one without annotation"):
        namespaces = cluster.kubectl("get", "namespaces", "-o", "name").split()
        if f"namespace/{NAMESPACE}" not in namespaces:
            cluster.kubectl("create", "namespace", NAMESPACE)
        cluster.kubectl("apply", "--filename", HERE / "llm.yaml")
        cluster.kubectl("rollout", "status", "-n", NAMESPACE, "statefulset/llm", "--timeout=60s")
        # Whoever is planned first takes the result core: planned side by side, pods would now and then swap theirs.
        _until(lambda: not _unplanned(cluster), PLANNED_SECONDS, "the StatefulSet's pods got no plans")
        cluster.kubectl("apply", "--filename", HERE / "pods.yaml")
        cluster.kubectl("wait", "-n", NAMESPACE, "pod/real-later", "--for=condition=Ready", "--timeout=120s")
    with step("kubectl annotate pod real-later step_thread_core=auto"):
        cluster.kubectl("annotate", "-n", NAMESPACE, "pod", "real-later", "step_thread_core=auto", "--overwrite")


def _wait_for_plans(cluster: KindCluster) -> None:
    with step("waiting until every pod has its plan"):
        _until(lambda: not _unplanned(cluster), PLANNED_SECONDS, "not every pod got a plan")
    with step("waiting until the shared ConfigMap names every node"):
        _until(lambda: _pod_nodes(cluster) <= _nodes_in_index(cluster), 60, "the shared ConfigMap is incomplete")


def _unplanned(cluster: KindCluster) -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in _pods(cluster)
        if "cpuplan.dev/status" not in pod["metadata"].get("annotations", {})
    ]


def _pod_nodes(cluster: KindCluster) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in _pods(cluster)}


def _pods(cluster: KindCluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cluster.kubectl("get", "pods", "-n", NAMESPACE, "-o", "json"))["items"]
    return found


def _nodes_in_index(cluster: KindCluster) -> set[str]:
    try:
        shown = cluster.kubectl("get", "configmap", "-n", RELEASE_NAMESPACE, "cpuplan", "-o", "json")
    except ClusterError:
        return set()
    return set(json.loads(shown).get("data", {}))


def _until(is_so: Callable[[], bool], limit_seconds: float, complaint: str) -> None:
    deadline = time.monotonic() + limit_seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise ClusterError(f"{complaint} within {limit_seconds:.0f} s; look with: kubectl get pods -A")
        time.sleep(0.5)


def _show(cluster: KindCluster) -> None:
    shown = [
        ["get", "configmap", "-n", RELEASE_NAMESPACE, "cpuplan"],
        ["get", "pod", "-n", NAMESPACE, "llm-0", "-o", r"jsonpath={.metadata.annotations.cpuplan\.dev/plan}"],
        ["get", "pods", "-n", NAMESPACE, "-o", f"custom-columns={COLUMNS}"],
    ]
    for arguments in shown:
        text = cluster.kubectl(*arguments)
        if text.startswith("{"):
            text = json.dumps(json.loads(text), indent=2) + "\n"
        sys.stdout.write(f"\n$ kubectl {' '.join(arguments)}\n{text}")
    sys.stdout.flush()


def _agent_url(node: str) -> str:
    """The page of a simulated node's agent, which has no pod to be asked through."""
    return f"http://127.0.0.1:{json.loads(_ports_file().read_text())[node]}/explain"


def _ports_file() -> Path:
    return _simulation_folder() / "ports.json"


def _choose_ports() -> dict[str, int]:
    """A port of loopback for each node, free now; kept in a file for whoever asks the agents."""
    with ExitStack() as sockets:
        bound = {node: sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for node in SIMULATED}
        ports = {node: server.getsockname()[1] for node, server in bound.items()}
    _ports_file().write_text(json.dumps(ports))
    return ports


def _simulation_folder() -> Path:
    return places.state_dir() / "clusters" / DEMO_CLUSTER / "simulation"


def _start_simulation(cluster: KindCluster) -> None:
    folder = _simulation_folder()
    if (folder / "ready").exists() and _running_simulation() is not None:
        return
    with step(f"starting {len(SIMULATED)} simulated GPU nodes: {', '.join(SIMULATED)}"):
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "simulation.log"
        ports = _choose_ports()
        nodes = [f"{name}={machine}:{ports[name]}" for name, machine in SIMULATED.items()]
        command = [sys.executable, "-m", "tests.simulation", "--kubeconfig", str(cluster.kubeconfig)]
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*command, "--folder", str(folder), *nodes],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=places.CHECKOUT,
                env={**os.environ, "PYTHONPATH": f"{places.CHECKOUT / 'operator'}:{places.CHECKOUT}"},
                start_new_session=True,
            )
        identity = process_identity.identify(process.pid)
        if identity is not None:
            identity.write(folder / "process.json")

        def is_ready() -> bool:
            if process.poll() is not None:
                raise ClusterError(f"the simulation ended; the last lines of {log}:\n{tail(log.read_text())}")
            return (folder / "ready").exists()

        _until(is_ready, 60, f"the simulated nodes are not registered ({log})")


def _running_simulation() -> ProcessIdentity | None:
    identity = process_identity.read(_simulation_folder() / "process.json")
    return identity if identity is not None and identity.is_running() else None


def _stop_simulation() -> None:
    identity = _running_simulation()
    if identity is not None:
        with step("ending the simulated nodes"):
            process_identity.end(identity, limit_seconds=60)
