"""Simulated nodes beside real ones: their objects, their pods' watch, and one real agent each."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cpuplan.host.devices import read_nvidia_gpus
from cpuplan.host.sysfs import read_online
from cpuplan.kube.client import KubeClient
from cpuplan.kube.connection import connect
from cpuplan.kube.errors import KubeError
from cpuplan.kube.paths import pods_path
from cpuplan.model.cpulist import format_cpu_list
from tests.fakekubelet import FakePodResources
from tests.machines import write_machine
from tests.simulation.kubelet import HEARTBEAT_SECONDS, SimulatedKubelet

TOKEN_SECONDS = 24 * 3600
"""Life of a simulated agent's token: longer than any demo or test run."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A simulated node: its name and the machine (tests/machines) whose files it has.

    `agent_port` is the port of its agent's pages on loopback; 0: any.
    """

    name: str
    machine: str
    agent_port: int = 0


class Simulation:
    """Simulated nodes of one cluster, from `start` to `stop`.

    Args:
        kubeconfig: an administrator's.
        folder: where machine trees, sockets, kubeconfigs and logs go.
        namespace: the release's namespace, which has the service account `cpuplan-agent`.
    """

    def __init__(self, kubeconfig: Path, folder: Path, specs: Sequence[NodeSpec], namespace: str = "cpuplan") -> None:
        self._kubeconfig = kubeconfig
        self._folder = folder
        self._specs = specs
        self._namespace = namespace
        self._client = KubeClient(connect(kubeconfig), user_agent="cpuplan-simulation")
        self._kubelets: dict[str, SimulatedKubelet] = {}
        self._servers: list[FakePodResources] = []
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        self._threads: list[threading.Thread] = []
        self._stop = threading.Event()

    def start(self) -> None:
        """Registers the nodes, plays their kubelets, and starts an agent on each."""
        for spec in self._specs:
            kubelet = self._make_kubelet(spec)
            kubelet.register()
            self._kubelets[spec.name] = kubelet
        for work in (self._beat, self._watch):
            thread = threading.Thread(target=work, name=work.__name__, daemon=True)
            thread.start()
            self._threads.append(thread)
        for spec in self._specs:
            self.start_agent(spec.name)

    def start_agent(self, node: str) -> int:
        """Starts the node's agent and returns its process id."""
        folder = self._folder / node
        (port,) = (spec.agent_port for spec in self._specs if spec.name == node)
        log = (folder / "agent.log").open("ab")
        command = [
            *(sys.executable, "-m", "cpuplan", "agent"),
            *("--node-name", node, "--kubeconfig", str(self._agent_kubeconfig(node))),
            *("--sysfs-root", str(folder / "sys"), "--proc-root", str(folder / "proc")),
            *("--cgroup-root", str(folder / "sys/fs/cgroup")),
            *("--podresources-socket", str(folder / "kubelet.sock")),
            *("--metrics-address", f"127.0.0.1:{port}"),
        ]
        with log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment())
        self._agents[node] = process
        return process.pid

    def stop_agent(self, node: str, *, kill: bool = False) -> None:
        """Ends the node's agent, by SIGTERM or (kill) by SIGKILL, and waits for it."""
        process = self._agents.pop(node)
        if kill:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def stop(self) -> None:
        """Ends the agents and removes the nodes from the cluster."""
        self._stop.set()
        for node in list(self._agents):
            self.stop_agent(node)
        for kubelet in self._kubelets.values():
            try:
                kubelet.unregister()
            except KubeError as error:
                _log.warning("node could not be removed node=%s error=%r", kubelet.node, str(error))
        for server in self._servers:
            server.stop()

    def _make_kubelet(self, spec: NodeSpec) -> SimulatedKubelet:
        folder = self._folder / spec.name
        folder.mkdir(parents=True, exist_ok=True)
        root = write_machine(spec.machine, folder)
        online = read_online(root)
        server = FakePodResources(folder / "kubelet.sock")
        server.start()
        self._servers.append(server)
        return SimulatedKubelet(
            client=self._client,
            node=spec.name,
            root=folder,
            devices=tuple(gpu.uuid for gpu in read_nvidia_gpus(root) if gpu.uuid is not None),
            cpus=format_cpu_list(online),
            cpu_count=len(online),
            answers=server,
        )

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            for kubelet in self._kubelets.values():
                try:
                    kubelet.beat()
                except KubeError as error:
                    _log.warning("heartbeat failed node=%s error=%r", kubelet.node, str(error))

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                listed = self._client.list_objects(pods_path())
                for pod in listed.items:
                    self._dispatch("ADDED", pod)
                version = listed.resource_version
                for event in self._client.watch(
                    pods_path(), resource_version=version, server_timeout_seconds=300, read_timeout_seconds=150
                ):
                    self._dispatch(event.kind, event.object)
            except KubeError as error:
                _log.warning("watch broke off error=%r", str(error))
                self._stop.wait(0.5)

    def _dispatch(self, kind: str, pod: dict[str, Any]) -> None:
        kubelet = self._kubelets.get(pod.get("spec", {}).get("nodeName", ""))
        if kubelet is None:
            return
        if kind == "DELETED":
            kubelet.forget(pod)
        else:
            kubelet.sync(pod)

    def _agent_kubeconfig(self, node: str) -> Path:
        """A kubeconfig of the agents' service account, with a token that is bound to the node."""
        path = self._folder / node / "kubeconfig"
        answer = self._client.create(
            f"/api/v1/namespaces/{self._namespace}/serviceaccounts/cpuplan-agent/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {
                    "expirationSeconds": TOKEN_SECONDS,
                    "boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": node},
                },
            },
        )
        document = yaml.safe_load(self._kubeconfig.read_text())
        name = document["users"][0]["name"]
        document["users"] = [{"name": name, "user": {"token": answer["status"]["token"]}}]
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(document))
        return path


def _environment() -> dict[str, str]:
    """This environment, with the product importable from the tree that holds it."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
