"""The pytest fixture `cluster`: a cluster for ring 2, used as it is or made for the run.

1. CPUPLAN_KUBECONFIG names a kubeconfig: that cluster, whatever it is. Its nodes pull the image CPUPLAN_IMAGE.
2. The kind cluster of `make cluster-up` runs: that one. It stays.
3. `--require-all`, or CPUPLAN_KEEP_CLUSTER=1: a kind cluster is made now. It is taken down at the end, unless
   CPUPLAN_KEEP_CLUSTER=1.
4. Otherwise the test is skipped, and says the above.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import fakegpus, kindcluster, places, productimage
from tests.cluster.clients import Clients, client_programs
from tests.cluster.console import ClusterError
from tests.cluster.kindcluster import TEST_CLUSTER, KindCluster

KUBECONFIG = "CPUPLAN_KUBECONFIG"
IMAGE = "CPUPLAN_IMAGE"
KEEP = "CPUPLAN_KEEP_CLUSTER"

HOW_TO_ENABLE = (
    f"needs a cluster: run `make cluster-up`, or set {KUBECONFIG} to the kubeconfig of any cluster (and {IMAGE} to"
    " an image its nodes can pull), or pass --require-all to have one made"
)
NEEDS_KIND = "needs a cluster of our own, whose nodes are containers: run `make cluster-up`"

TEST_SECONDS = 300
"""Limit of a test that uses the cluster, its fixtures not counted: making a cluster may take long."""

RELEASE = "cpuplan"
"""Name of the Helm release, and of its namespace."""

NODE_READY_SECONDS = 120
POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster under test, and what a test can do to it. `kind` is None for one that CPUPLAN_KUBECONFIG names."""

    clients: Clients
    kind: KindCluster | None

    def kubectl(self, *arguments: str | Path, limit_seconds: float = 120.0) -> str:
        """What `kubectl ARGUMENTS` writes to standard output; ClusterError where it fails."""
        return self.clients.kubectl(*arguments, limit_seconds=limit_seconds)

    def get(self, *arguments: str) -> dict[str, Any]:
        """The object, or list of objects, that `kubectl get ARGUMENTS` shows."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return found

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Creates or changes these objects."""
        with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
            json.dump({"apiVersion": "v1", "kind": "List", "items": objects}, file)
            file.flush()
            self.kubectl("apply", "-f", file.name)

    def helm(self, *arguments: str | Path, limit_seconds: float = 300.0) -> str:
        """What `helm ARGUMENTS` writes to standard output; ClusterError where it fails."""
        return self.clients.helm(*arguments, limit_seconds=limit_seconds)

    def image(self) -> str:
        """The product image, built once in a run, which every node has (or can pull) afterwards."""
        if self.kind is None:
            named = os.environ.get(IMAGE)
            return named or pytest.skip(f"needs our image on the nodes: set {IMAGE} to one that they can pull")
        return _loaded_image(self.kind)

    def install_chart(self, values: Mapping[str, Any] | None = None, *, files: Sequence[Path] = ()) -> None:
        """Installs our chart, or changes the installed one to exactly these values, and waits until all is ready."""
        with tempfile.TemporaryDirectory() as folder:
            image, given = Path(folder, "image.json"), Path(folder, "values.json")
            image.write_text(json.dumps(self._image_values()), encoding="utf-8")
            given.write_text(json.dumps(values or {}), encoding="utf-8")
            self.helm(
                "upgrade", "--install", RELEASE, places.CHECKOUT / "charts" / "cpuplan", "--namespace", RELEASE,
                "--create-namespace", "--reset-values", f"--values={image}", *(f"--values={path}" for path in files),
                f"--values={given}", "--wait", "--timeout=180s",
            )  # fmt: skip

    def _image_values(self) -> dict[str, object]:
        """The chart's values that name the product image."""
        image = self.image()
        if self.kind is not None:
            return productimage.chart_values(self.kind.engine, image)
        repository, _, tag = image.rpartition(":")
        return {"image": {"repository": repository, "tag": tag}}

    def uninstall_chart(self) -> None:
        """Removes the release and waits until its objects are gone; nothing happens where it is not installed."""
        self.helm("uninstall", RELEASE, "--namespace", RELEASE, "--ignore-not-found", "--wait")

    def make_gpu_nodes(
        self, *, devices: int = fakegpus.DEVICES_PER_NODE, reregister_after_seconds: float = 0.0
    ) -> None:
        """Gives every worker that many fake GPUs; `fakegpus.CHART_VALUES` goes with it."""
        fakegpus.install(self.kubectl, self.image(), devices=devices, reregister_after_seconds=reregister_after_seconds)

    @property
    def workers(self) -> tuple[str, ...]:
        """The names of the real nodes without a control plane."""
        found = self.get("nodes", "--selector=!node-role.kubernetes.io/control-plane,!cpuplan.dev/simulated")["items"]
        return tuple(sorted(node["metadata"]["name"] for node in found))

    def load_image(self, image: str) -> None:
        """Puts an image of the Docker engine into every node; skips where the nodes are not ours."""
        self._own.load_image(image)

    def on_node(self, node: str, *command: str) -> str:
        """What the command, run on the node itself, writes to standard output; skips where the nodes are not ours."""
        return self._own.engine.docker("exec", node, *command)

    @contextmanager
    def frozen(self, node: str) -> Iterator[None]:
        """For the block, nothing on the node runs: as after a power cut, or with its network gone."""
        with self._away(node, ["pause", node], ["unpause", node]):
            yield

    def restart_node(self, node: str) -> None:
        """Reboots the node, and returns when it is Ready again."""
        with self._away(node, ["stop", node], ["start", node]):
            pass

    @contextmanager
    def kubelet_stopped(self, node: str) -> Iterator[None]:
        """For the block, the node's kubelet does not run; its containers do."""
        systemctl = ["exec", node, "systemctl"]
        with self._away(node, [*systemctl, "stop", "kubelet"], [*systemctl, "start", "kubelet"]):
            yield

    @contextmanager
    def _away(self, node: str, go: Sequence[str], come: Sequence[str]) -> Iterator[None]:
        """Runs one docker command before the block, the other after it, and waits until the node's kubelet is back.

        Ready alone may be an old word: only a renewed lease shows that the kubelet runs.
        """
        docker = self._own.engine.docker
        docker(*go)
        try:
            last_sign = self._last_sign(node)
            yield
        finally:
            docker(*come)
        deadline = time.monotonic() + NODE_READY_SECONDS
        while self._last_sign(node) == last_sign:
            if time.monotonic() > deadline:
                raise ClusterError(f"the kubelet of {node} is not back after {NODE_READY_SECONDS} s")
            time.sleep(POLL_SECONDS)
        limit = f"--timeout={NODE_READY_SECONDS}s"
        self.kubectl("wait", "node", node, "--for=condition=Ready", limit, limit_seconds=NODE_READY_SECONDS + 10)

    def _last_sign(self, node: str) -> str:
        return str(self.get("lease", "-n", "kube-node-lease", node)["spec"]["renewTime"])

    def audit_position(self) -> int:
        """The present length of the API server's audit log in bytes, for `audit_entries`."""
        return int(self.on_node(self._own.control_plane, "stat", "--format=%s", kindcluster.AUDIT_LOG))

    def audit_entries(self, since: int) -> list[dict[str, Any]]:
        """The requests that the API server has answered since that position of its audit log."""
        text = self.on_node(self._own.control_plane, "tail", f"--bytes=+{since + 1}", kindcluster.AUDIT_LOG)
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    @property
    def _own(self) -> KindCluster:
        return self.kind or pytest.skip(NEEDS_KIND)


@cache
def _loaded_image(kind: KindCluster) -> str:
    image = productimage.ensure(kind.engine)
    kind.load_image(image)
    return image


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The cluster under test; see this module."""
    named = os.environ.get(KUBECONFIG)
    if named:
        yield Cluster(Clients(client_programs(), Path(named)), None)
        return
    found = kindcluster.existing(TEST_CLUSTER)
    is_kept = os.environ.get(KEEP) == "1"
    if found is None and not is_kept and not request.config.getoption("--require-all"):
        pytest.skip(HOW_TO_ENABLE)
    kind = found or kindcluster.up(TEST_CLUSTER)
    yield Cluster(Clients(kind.programs, kind.kubeconfig), kind)
    if found is None and not is_kept:
        kindcluster.down(TEST_CLUSTER)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that use the cluster, and does not count what their fixtures take."""
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker("cluster")
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TEST_SECONDS, func_only=True))
