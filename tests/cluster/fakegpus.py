"""Makes every worker of a cluster a GPU node: installs the fake device plugin and waits for its devices."""

from __future__ import annotations

import hashlib
import json
import string
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster import places
from tests.cluster.console import ClusterError, step

RESOURCE = "nvidia.com/gpu"

CHART_VALUES = places.HERE / "fakegpus-values.yaml"
"""Values file for helm, with which the agents run on those workers and read the device tree."""

NODE_LABEL = "cpuplan-fake/gpus"
"""Label of the nodes that have the plugin: all real workers at the time of `install`."""

TREE = "/var/lib/cpuplan-fake"
"""Folder on each worker with the device tree: `sys` and `proc`, and the plugin's file of unhealthy devices."""

DEVICES_PER_NODE = 4
"""Enough for two containers with two devices each, and for pods that share a node."""

READY_SECONDS = 90.0
"""Limit for every worker to count its devices; allocatable about 6 s after the plugin starts."""

POLL_SECONDS = 0.5

Kubectl = Callable[..., str]
"""Runs kubectl with these arguments; returns its standard output, raises ClusterError where it fails."""


def install(
    kubectl: Kubectl, image: str, *, devices: int = DEVICES_PER_NODE, reregister_after_seconds: float = 0.0
) -> None:
    """Labels the workers (all nodes without the control plane's label), installs the plugin on them, and waits.

    Args:
        image: an image with Python, grpcio and protobuf: our product's.
        reregister_after_seconds: how long devices stay away after a restart of a kubelet.

    Raises:
        ClusterError: kubectl failed, or a worker has other counts after READY_SECONDS.
    """
    script = places.HERE / "deviceplugin.py"
    with step(f"making the workers GPU nodes with {devices} devices each"), tempfile.TemporaryDirectory() as folder:
        manifest = Path(folder, "fakegpus.yaml")
        manifest.write_text(
            string.Template((places.HERE / "fakegpus.yaml").read_text(encoding="utf-8")).substitute(
                IMAGE=image,
                DEVICES=devices,
                REREGISTER_AFTER_SECONDS=reregister_after_seconds,
                SCRIPT_HASH=f'"{hashlib.sha256(script.read_bytes()).hexdigest()[:12]}"',
                TREE=TREE,
            ),
            encoding="utf-8",
        )
        config_map = Path(folder, "configmap.json")
        config_map.write_text(_config_map(script), encoding="utf-8")
        kubectl(
            "label",
            "nodes",
            "--selector=!node-role.kubernetes.io/control-plane,!cpuplan.dev/simulated",
            f"{NODE_LABEL}=true",
            "--overwrite",
        )
        kubectl("apply", "-f", manifest)
        kubectl("apply", "-f", config_map)
        kubectl("rollout", "status", "-n", "cpuplan-fake", "daemonset/fake-gpus", f"--timeout={READY_SECONDS:.0f}s")
        wait_for_devices(kubectl, devices)


def wait_for_devices(kubectl: Kubectl, devices: int) -> None:
    """Returns once every worker has that many allocatable devices.

    Raises:
        ClusterError: not within READY_SECONDS.
    """
    deadline = time.monotonic() + READY_SECONDS
    while set((found := allocatable(kubectl)).values()) != {devices}:
        if time.monotonic() > deadline:
            raise ClusterError(f"workers should have {devices} {RESOURCE} each, but have: {found}")
        time.sleep(POLL_SECONDS)


def allocatable(kubectl: Kubectl) -> dict[str, int]:
    """The allocatable fake devices of every node that the plugin runs on."""
    nodes: list[dict[str, Any]] = json.loads(kubectl("get", "nodes", "-l", NODE_LABEL, "-o", "json"))["items"]
    return {node["metadata"]["name"]: int(node["status"]["allocatable"].get(RESOURCE, 0)) for node in nodes}


def _config_map(script: Path) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "fake-gpus", "namespace": "cpuplan-fake"},
            "data": {script.name: script.read_text(encoding="utf-8")},
        }
    )
