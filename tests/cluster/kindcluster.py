"""The kind cluster: a control plane and two workers, made, looked at and deleted by name.

Two names are used, so that tests and the demo do not meet: TEST_CLUSTER and DEMO_CLUSTER. Everything about a
cluster lies in `clusters/NAME` of the state folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import engine, go_programs, host_traces, images, places
from tests.cluster.clients import Clients, client_programs
from tests.cluster.console import ClusterError, run, step, tail
from tests.cluster.engine import Engine

TEST_CLUSTER = "cpuplan-test"
DEMO_CLUSTER = "cpuplan-demo"

WORKER_COUNT = 2

READY_SECONDS = 180
"""Limit for all nodes to be Ready; it takes about 10 s after `kind create` on an idle two-core machine."""

AUDIT_LOG = "/var/log/kubernetes/audit.log"
"""Path of the audit log in the control-plane node."""


@dataclass(frozen=True, slots=True)
class KindCluster:
    """A running cluster: its name, the engine it is on, its programs, and its administrator's kubeconfig."""

    name: str
    engine: Engine
    programs: Path
    kubeconfig: Path

    @property
    def control_plane(self) -> str:
        """The name of the control-plane node, which is also its container's."""
        return f"{self.name}-control-plane"

    @property
    def workers(self) -> tuple[str, ...]:
        """The names of the worker nodes, which are also their containers'."""
        return (f"{self.name}-worker", *(f"{self.name}-worker{number}" for number in range(2, WORKER_COUNT + 1)))

    def load_image(self, image: str) -> None:
        """Puts an image of the engine into every node."""
        with step(f"loading image {image} into the nodes of {self.name}"):
            self._kind("load", "docker-image", image, "--name", self.name)

    def kubectl(self, *arguments: str | Path, limit_seconds: float = 120.0) -> str:
        """What `kubectl ARGUMENTS` as administrator writes to standard output; ClusterError where it fails."""
        return Clients(self.programs, self.kubeconfig).kubectl(*arguments, limit_seconds=limit_seconds)

    def helm(self, *arguments: str | Path, limit_seconds: float = 300.0) -> str:
        """What `helm ARGUMENTS` as administrator writes to standard output; ClusterError where it fails."""
        return Clients(self.programs, self.kubeconfig).helm(*arguments, limit_seconds=limit_seconds)

    def _kind(self, *arguments: str | Path) -> str:
        return _kind(self.engine, self.programs, *arguments)


def up(name: str) -> KindCluster:
    """The cluster of that name, running and with all nodes Ready: the one that is there, else made now.

    Raises:
        ClusterError: a step failed; the text has the end of its log.
    """
    with places.locked("cluster"):
        found = existing(name)
        if found is not None:
            return found
        if engine.running() is None:
            # Whatever clusters there were, they ended with the engine they were on.
            shutil.rmtree(_clusters(), ignore_errors=True)
        docker = engine.find_or_start()
        image = images.ensure_node(docker)
        binaries = client_programs() if image == images.KIND_NODE_IMAGE else go_programs.built(go_programs.ALL)
        folder = _folder(name)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _kind(docker, binaries, "delete", "cluster", "--name", name, "--kubeconfig", folder / "kubeconfig")
        if not docker.is_ours:
            host_traces.look().write(folder / "host.json")
        cluster = KindCluster(name, docker, binaries, folder / "kubeconfig")
        _create(cluster, image, folder)
        (folder / "cluster.json").write_text(json.dumps({"programs": str(binaries)}), encoding="utf-8")
        return cluster


def existing(name: str) -> KindCluster | None:
    """The cluster of that name where it is up and its API server answers; None otherwise."""
    folder = _folder(name)
    try:
        binaries = Path(json.loads((folder / "cluster.json").read_text(encoding="utf-8"))["programs"])
    except (OSError, ValueError, KeyError):
        return None
    docker = engine.running()
    if docker is None:
        return None
    cluster = KindCluster(name, docker, binaries, folder / "kubeconfig")
    try:
        cluster.kubectl("get", "--raw", "/readyz", limit_seconds=20)
    except ClusterError:
        return None
    return cluster


def down(name: str) -> None:
    """Deletes the cluster of that name with everything that was made for it, and our engine with the last one."""
    with places.locked("cluster"):
        folder = _folder(name)
        docker = engine.running()
        if docker is not None and folder.is_dir():
            with step(f"deleting cluster {name}"):
                _kind(
                    docker,
                    client_programs(),
                    "delete",
                    "cluster",
                    "--name",
                    name,
                    "--kubeconfig",
                    folder / "kubeconfig",
                )
            note = host_traces.read_note(folder / "host.json")
            if note is not None:
                host_traces.restore_sysctls(note)
        shutil.rmtree(folder, ignore_errors=True)
        if docker is None or not any(_clusters().glob("*")):
            engine.stop(engine.own_place())
            shutil.rmtree(places.state_dir(), ignore_errors=True)


def _create(cluster: KindCluster, image: str, folder: Path) -> None:
    """Runs `kind create`, then waits until every node is Ready."""
    file = folder / "kind.json"
    is_home_made = image != images.KIND_NODE_IMAGE
    # A copy: the node has it mounted as long as the cluster lives, the checkout may go before.
    policy = Path(shutil.copy(places.HERE / "audit-policy.yaml", folder))
    file.write_text(json.dumps(configuration(policy, is_home_made=is_home_made), indent=1), encoding="utf-8")
    with step(f"creating kind cluster {cluster.name} (control plane and {WORKER_COUNT} workers)"):
        try:
            _kind(
                cluster.engine, cluster.programs, "create", "cluster", "--name", cluster.name, "--image", image,
                "--config", file, "--kubeconfig", cluster.kubeconfig, "--retain",
            )  # fmt: skip
            cluster.kubectl(
                "wait", "node", "--all", "--for=condition=Ready", f"--timeout={READY_SECONDS}s",
                limit_seconds=READY_SECONDS + 10,
            )  # fmt: skip
        except ClusterError as error:
            raise ClusterError(f"{error}\n{_node_logs(cluster)}") from error


def configuration(audit_policy: Path, *, is_home_made: bool) -> dict[str, object]:
    """kind's configuration. Source: kind.x-k8s.io/v1alpha4 and kubeadm.k8s.io/v1beta4."""
    policy = "/etc/kubernetes/audit-policy.yaml"
    control_plane = {
        "role": "control-plane",
        "extraMounts": [{"hostPath": str(audit_policy), "containerPath": policy, "readOnly": True}],
    }
    audit = [
        {"op": "add", "path": "/apiServer/extraArgs/-", "value": {"name": f"audit-{name}", "value": value}}
        for name, value in (("policy-file", policy), ("log-path", AUDIT_LOG), ("log-maxsize", "200"))
    ] + [
        {
            "op": "add",
            "path": "/apiServer/extraVolumes",
            "value": [
                {"name": "audit-policy", "hostPath": policy, "mountPath": policy, "readOnly": True, "pathType": "File"},
                {
                    "name": "audit-log",
                    "hostPath": str(Path(AUDIT_LOG).parent),
                    "mountPath": str(Path(AUDIT_LOG).parent),
                    "pathType": "DirectoryOrCreate",
                },
            ],
        }
    ]
    configuration: dict[str, object] = {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {"apiServerAddress": "127.0.0.1", "disableDefaultCNI": is_home_made},
        "nodes": [control_plane, *({"role": "worker"} for _ in range(WORKER_COUNT))],
        "kubeadmConfigPatchesJSON6902": [
            {
                "group": "kubeadm.k8s.io",
                "version": "v1beta4",
                "kind": "ClusterConfiguration",
                "patch": json.dumps(audit),
            }
        ],
    }
    if is_home_made:
        configuration["kubeadmConfigPatches"] = [json.dumps(patch) for patch in _home_made_patches()]
    return configuration


def _home_made_patches() -> list[dict[str, object]]:
    """What kubeadm must be told about the home-made node: its images, no DNS, cgroup v1, no raised limits."""
    return [
        {"kind": "ClusterConfiguration", "imageRepository": images.REPOSITORY},
        {"kind": "InitConfiguration", "skipPhases": ["preflight", "addon/coredns"]},
        {"kind": "JoinConfiguration", "skipPhases": ["preflight"]},
        {
            "kind": "KubeletConfiguration",
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "oomScoreAdj": 0,
            "maxOpenFiles": 20000,
        },
        {
            "kind": "KubeProxyConfiguration",
            "oomScoreAdj": 0,
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        },
    ]


def _kind(docker: Engine, binaries: Path, *arguments: str | Path) -> str:
    return run([binaries / "kind", *arguments], log="kind", environment=docker.environment)


def _clusters() -> Path:
    return places.state_dir() / "clusters"


def _folder(name: str) -> Path:
    return _clusters() / name


def _node_logs(cluster: KindCluster) -> str:
    """The last lines of what each node of a cluster that did not come up has to say."""
    parts = []
    for node in (cluster.control_plane, *cluster.workers):
        shown = subprocess.run(
            ["docker", "exec", node, "tail", "-n", "5", "/var/log/kind/kubelet.log"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **cluster.engine.environment},
        )
        parts.append(f"last lines of the kubelet's log on {node}:\n{tail(shown.stdout or shown.stderr)}")
    return "\n".join(parts)
