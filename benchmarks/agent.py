r"""The agent on a full node: memory, CPU and API requests of its process.

    PYTHONPATH=operator:. python -m benchmarks.agent [--quiet-seconds 60]

110 running pods on a described two-socket server with eight GPUs (224 CPUs), 64 of them planned, eight on each GPU;
the kubelet's socket and the API server are the tests' own.
1. The agent starts, and plans all of them.
2. A quiet time: nothing changes. What it writes then has to be nothing.
3. A noisy time, as long: a status of a neighbour changes every second.
4. All 64 quotas change, and one pod event tells it so.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cpuplan.host.root import HostRoot
from cpuplan.kube.annotations import PLAN
from cpuplan.kube.paths import pod_path
from cpuplan.model.podplan import PodPlan
from tests.fakeapi import FakeApi
from tests.fakekubelet import FakePodResources
from tests.machines import describe, gpu_uuid, write_machine

MACHINE = "h100-server"
NODE = "gpu-1"
POD_COUNT = 110
"""The kubelet's default for the most pods of a node."""
PLANNED_COUNT = 64
GPU = "nvidia.com/gpu"
LIMIT_SECONDS = 120.0
REPOSITORY = Path(__file__).parents[1]


class Node:
    """The pods of the node: in the API server, at the kubelet, and their cgroups."""

    def __init__(self, api: FakeApi, kubelet: FakePodResources, root: HostRoot) -> None:
        self._api = api
        self._kubelet = kubelet
        self._root = root

    def fill(self) -> None:
        """All pods run; the first 64 ask for a plan."""
        gpus = describe(MACHINE).gpu_addresses
        for number in range(POD_COUNT):
            is_planned = number < PLANNED_COUNT
            name = f"llm-{number:03}"
            devices = [f"{gpu_uuid(MACHINE, gpus[number % len(gpus)])}::{number // len(gpus)}"] if is_planned else []
            self._kubelet.set_devices("default", name, "engine", {GPU: devices} if devices else {})
            uid = f"{number:08x}-0000-4000-8000-000000000000"
            container_id = f"{number:064x}"
            self._set_cgroup(uid, container_id, quota_us=800_000)
            self._api.put(pod_path("default", name), _pod(uid, container_id, number, is_planned=is_planned))

    def resize(self) -> None:
        """Every planned container gets another quota, and one pod's status tells that something happened."""
        for number in range(PLANNED_COUNT):
            self._set_cgroup(f"{number:08x}-0000-4000-8000-000000000000", f"{number:064x}", quota_us=1_600_000)
        self.touch(0)

    def touch(self, number: int) -> None:
        """Something in the pod's status changes."""
        status = {"status": {"message": f"seen at {time.monotonic()}"}}
        self._api.patch(pod_path("default", f"llm-{number:03}"), status)

    def usable(self) -> list[int]:
        """What each published plan says of its quota."""
        found = []
        for number in range(PLANNED_COUNT):
            pod = self._api.object(pod_path("default", f"llm-{number:03}")) or {}
            text = pod["metadata"]["annotations"].get(PLAN)
            found.extend([] if text is None else [PodPlan.from_json(text).containers[0][1].usable])
        return found

    def _set_cgroup(self, uid: str, container_id: str, *, quota_us: int) -> None:
        folder = self._root.cgroup / "kubepods" / "burstable" / f"pod{uid}" / container_id
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpuset.cpus.effective").write_text("0-223\n")
        (folder / "cpu.max").write_text(f"{quota_us} 100000\n")


@dataclass(frozen=True, slots=True)
class Agent:
    """The agent's process, from outside."""

    pid: int
    port: int

    def cpu_seconds(self) -> float:
        """CPU time so far, in user and kernel mode (proc_pid_stat(5))."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self, line: str = "VmRSS") -> float:
        """Resident memory; VmHWM is its peak."""
        match = re.search(rf"^{line}:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text(), re.MULTILINE)
        return int(match[1]) / 1024 if match else 0.0

    def metric(self, name: str) -> float:
        """A metric without labels, 0 before it is there."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            match = re.search(rf"^cpuplan_agent_{name} (\S+)$", answer.read().decode(), re.MULTILINE)
        return float(match[1]) if match else 0.0


@contextmanager
def running_agent(api: FakeApi, kubelet: FakePodResources, root: HostRoot, folder: Path) -> Iterator[Agent]:
    """The product's process on the node."""
    command = [
        *(sys.executable, "-m", "cpuplan", "agent", "--node-name", NODE, "--start-jitter-seconds", "0"),
        *("--kubeconfig", str(api.write_kubeconfig(folder / "kubeconfig")), "--metrics-address", "127.0.0.1:0"),
        *("--sysfs-root", str(root.sys), "--proc-root", str(root.proc), "--cgroup-root", str(root.cgroup)),
        *("--podresources-socket", str(kubelet.socket)),
    ]
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'operator'}{os.pathsep}{REPOSITORY}"}
    log = folder / "log"
    with log.open("wb") as output, subprocess.Popen(command, stderr=output, env=environment) as process:
        try:
            _until(lambda: "agent starts" in log.read_text())
            match = re.search(r" port=(\d+) ", log.read_text())
            yield Agent(process.pid, int(match[1]) if match else 0)
        finally:
            process.terminate()


def measure(node: Node, api: FakeApi, agent: Agent, quiet_seconds: float) -> Iterator[str]:
    """The figures, one line each, as they are found."""
    began = time.monotonic()
    _until(lambda: len(node.usable()) == PLANNED_COUNT)
    yield f"start: {PLANNED_COUNT} plans after {time.monotonic() - began:.1f} s, {_writes(api)} patches"
    time.sleep(3)
    for name, seconds_between in (("quiet", 0.0), ("noisy neighbour", 1.0)):
        cpu, requests, writes, turns = _counts(api, agent)
        _pass_time(node, quiet_seconds, seconds_between)
        used, asked, wrote, turned = (
            now - then for now, then in zip(_counts(api, agent), (cpu, requests, writes, turns), strict=True)
        )
        yield (
            f"{name}, {quiet_seconds:.0f} s: {used / quiet_seconds:.2%} of one CPU, {turned:.0f} turns, "
            f"{asked:.0f} requests of which {wrote:.0f} writes, {agent.memory_mib():.1f} MiB resident"
        )
    seconds, turns, writes = agent.metric("replan_seconds_sum"), agent.metric("replan_seconds_count"), _writes(api)
    began = time.monotonic()
    node.resize()
    _until(lambda: set(node.usable()) == {16})
    elapsed = time.monotonic() - began
    each = (agent.metric("replan_seconds_sum") - seconds) / (agent.metric("replan_seconds_count") - turns)
    yield (
        f"{PLANNED_COUNT} quotas changed: all plans written after {elapsed:.2f} s in {_writes(api) - writes} patches; "
        f"reading and planning the node {each * 1000:.0f} ms"
    )
    yield f"memory at the end: {agent.memory_mib():.1f} MiB resident, {agent.memory_mib('VmHWM'):.1f} MiB at most"


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quiet-seconds", type=float, default=60.0, help="length of each time (default: %(default)s)")
    options = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        tree = write_machine(MACHINE, folder / "machine")
        root = HostRoot(tree.sys, tree.proc, folder / "cgroup")
        root.cgroup.mkdir()
        (root.cgroup / "cgroup.controllers").write_text("cpuset cpu memory\n")
        with FakeApi() as api, FakePodResources(folder / "kubelet.sock") as kubelet:
            node = Node(api, kubelet, root)
            node.fill()
            with running_agent(api, kubelet, root, folder) as agent:
                for line in measure(node, api, agent, options.quiet_seconds):
                    print(line, flush=True)
    return 0


def _pod(uid: str, container_id: str, number: int, *, is_planned: bool) -> dict[str, Any]:
    """A running pod of the size that pods have, about 8 KB."""
    limits: dict[str, str] = {"cpu": "8", "memory": "64Gi", **({GPU: "1"} if is_planned else {})}
    env = [{"name": f"SETTING_{index}", "value": "x" * 80} for index in range(60)]
    return {
        "metadata": {
            "uid": uid,
            "creationTimestamp": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z",
            "labels": {"app": "llm"},
            "annotations": {"step_thread_core": "auto"} if is_planned else {},
        },
        "spec": {
            "nodeName": NODE,
            "containers": [{"name": "engine", "image": "engine", "env": env, "resources": {"limits": limits}}],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {"name": "engine", "containerID": f"containerd://{container_id}", "state": {"running": {}}}
            ],
        },
    }


def _pass_time(node: Node, seconds: float, seconds_between: float) -> None:
    ends_at = time.monotonic() + seconds
    while seconds_between and time.monotonic() + seconds_between < ends_at:
        node.touch(POD_COUNT - 1)
        time.sleep(seconds_between)
    time.sleep(max(0.0, ends_at - time.monotonic()))


def _counts(api: FakeApi, agent: Agent) -> tuple[float, float, float, float]:
    """CPU seconds, API requests, writes among them, and turns of the loop so far."""
    return agent.cpu_seconds(), len(api.requests), _writes(api), agent.metric("replan_seconds_count")


def _writes(api: FakeApi) -> int:
    return sum(request.method != "GET" for request in list(api.requests))


def _until(condition: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if time.monotonic() > ends_at:
            raise TimeoutError(f"what the benchmark waits for did not come within {LIMIT_SECONDS:.0f} s")
        time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(main())
