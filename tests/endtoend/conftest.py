"""The chart, installed once for all tests here, and pods that end with their test."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from cpuplan.model.podplan import PodPlan
from tests.cluster import fakegpus
from tests.cluster.console import ClusterError
from tests.cluster.fixture import RELEASE, Cluster
from tests.simulation.nodes import NodeSpec, Simulation

PLAN_KEY = "cpuplan.dev/plan"
STATUS_KEY = "cpuplan.dev/status"
LIMIT_SECONDS = 90.0
"""How long a condition may take on a busy machine before a test fails; none is measured."""

SIMULATED_NODE = "sim-h100"

AUDIT_PAGE = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
AUDIT_ROLE = yaml.safe_load(
    re.search(r"^    apiVersion: rbac.*?\n\n", AUDIT_PAGE, re.MULTILINE | re.DOTALL)[0]  # type: ignore[index]
)
AUDITOR = "auditor"

Json = dict[str, Any]


def until(condition: Callable[[], Any], what: str, *, limit_seconds: float = LIMIT_SECONDS) -> Any:
    """The first true value of the condition; fails with `what` after the limit."""
    deadline = time.monotonic() + limit_seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not within {limit_seconds:.0f} s")
        time.sleep(0.2)
    return value


@dataclass(slots=True)
class Stage:
    """A namespace of one test on the installed product: pods are made here and looked at."""

    cluster: Cluster
    namespace: str
    image: str
    _made: list[str] = field(default_factory=list)

    def make_pod(
        self,
        name: str,
        *,
        annotations: Mapping[str, str] | None = None,
        node: str | None = None,
        gpus: int = 1,
        command: str = "sleep infinity",
        limits: Mapping[str, str] | None = None,
        spec: Mapping[str, Any] | None = None,
    ) -> None:
        """Creates a pod with one container `engine`; on a simulated node where `node` names one.

        `spec` is what else the pod's spec has.
        """
        container: Json = {
            "name": "engine",
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", command],
            "resources": {
                "requests": {"cpu": "50m", "memory": "32Mi"},
                "limits": {**({fakegpus.RESOURCE: str(gpus)} if gpus else {}), **(limits or {})},
            },
        }
        whole: Json = {"containers": [container], "terminationGracePeriodSeconds": 0, **(spec or {})}
        if node is not None:
            whole["nodeSelector"] = {"kubernetes.io/hostname": node}
            whole["tolerations"] = [{"key": "cpuplan.dev/simulated", "operator": "Exists"}]
        metadata = {"name": name, "namespace": self.namespace, "annotations": dict(annotations or {})}
        self.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": whole})
        self._made.append(name)

    def pod(self, name: str) -> Json:
        """The pod as it is now."""
        return self.cluster.get("pod", "-n", self.namespace, name)

    def annotations(self, name: str) -> dict[str, str]:
        """The pod's annotations, kubectl's own aside."""
        found = self.pod(name)["metadata"].get("annotations", {})
        return {key: text for key, text in found.items() if not key.startswith("kubectl.kubernetes.io/")}

    def labels(self, name: str) -> dict[str, str]:
        """The pod's labels."""
        found: dict[str, str] = self.pod(name)["metadata"].get("labels", {})
        return found

    def annotate(self, name: str, *changes: str) -> None:
        """`kubectl annotate pod NAME CHANGES`."""
        self.cluster.kubectl("annotate", "-n", self.namespace, "pod", name, *changes, "--overwrite")

    def plan(self, name: str) -> PodPlan:
        """The pod's plan, once it has one."""
        text = until(lambda: self.annotations(name).get(PLAN_KEY), f"pod {name} has a plan")
        return PodPlan.from_json(text)

    def until_running(self, name: str) -> None:
        """Returns once the pod runs."""
        until(lambda: self.pod(name)["status"].get("phase") == "Running", f"pod {name} runs")

    def delete(self, name: str) -> None:
        """Deletes the pod and waits until it is gone."""
        self.cluster.kubectl("delete", "pod", "-n", self.namespace, name, "--ignore-not-found", "--timeout=60s")


@pytest.fixture(scope="session")
def installed(cluster: Cluster) -> Cluster:
    """The cluster with fake GPUs and our chart."""
    cluster.make_gpu_nodes()
    cluster.install_chart(files=[fakegpus.CHART_VALUES])
    return cluster


@pytest.fixture
def stage(installed: Cluster) -> Iterator[Stage]:
    """A fresh namespace; its pods are gone before the next test wants their GPUs."""
    namespace = f"e2e-{uuid.uuid4().hex[:8]}"
    installed.kubectl("create", "namespace", namespace)
    yield Stage(installed, namespace, installed.image())
    installed.kubectl("delete", "pods", "-n", namespace, "--all", "--timeout=60s")
    installed.kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture
def auditor(stage: Stage, tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of a service account with the role of docs/audit.md in the agents' namespace, and no other."""
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": stage.namespace, "namespace": RELEASE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": AUDIT_ROLE["metadata"]["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": AUDITOR, "namespace": stage.namespace}],
    }
    stage.cluster.kubectl("create", "serviceaccount", AUDITOR, "-n", stage.namespace)
    stage.cluster.apply(AUDIT_ROLE, binding)
    token = stage.cluster.kubectl("create", "token", AUDITOR, "-n", stage.namespace).strip()
    config = json.loads(stage.cluster.kubectl("config", "view", "--raw", "--minify", "-o", "json"))
    config["users"][0]["user"] = {"token": token}
    path = tmp_path / "auditor-kubeconfig"
    path.write_text(json.dumps(config))
    yield path
    names = (f"rolebinding/{stage.namespace}", f"role/{AUDIT_ROLE['metadata']['name']}")
    stage.cluster.kubectl("delete", "-n", RELEASE, "--ignore-not-found", *names)


@pytest.fixture(scope="session")
def simulation(installed: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulation]:
    """An eight-GPU two-socket server beside the real workers, with an agent of its own."""
    folder: Path = tmp_path_factory.mktemp("simulation")
    simulated = Simulation(installed.clients.kubeconfig, folder, [NodeSpec(SIMULATED_NODE, "h100-server")])
    simulated.start()
    yield simulated
    simulated.stop()


def is_refused(action: Callable[[], object]) -> str:
    """The text with which the API server refuses the action; fails where it does not."""
    try:
        action()
    except ClusterError as error:
        return str(error)
    pytest.fail("the API server accepted it")
