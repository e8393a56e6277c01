r"""From `kubectl annotate` to the plan on the pod, and back: on a running pod of a real cluster with cpuplan installed.

    PYTHONPATH=operator:. python -m benchmarks.annotating --kubeconfig FILE \
        --namespace demo --pod real-later [--times 40]

Prints the p50, p95 and largest time from the answered request to the watch event that brings the plan (or its
removal); beside them, in the same run, the time in which the API server's watch brings back a change of a foreign
annotation: the limit that no controller can be below.
"""

from __future__ import annotations

import argparse
import queue
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from cpuplan.kube.annotations import SETTING, STATUS
from cpuplan.kube.client import KubeClient
from cpuplan.kube.connection import connect
from cpuplan.kube.paths import pod_path, pods_path

ECHO = "benchmark.example/echo"
LIMIT_SECONDS = 30.0

Annotations = Mapping[str, str]


class _Pod:
    """One pod, and its annotations as a watch brings them."""

    def __init__(self, client: KubeClient, namespace: str, name: str) -> None:
        self._client = client
        self._path = pod_path(namespace, name)
        self._seen: queue.Queue[tuple[float, Annotations]] = queue.Queue()
        version = client.get(self._path)["metadata"]["resourceVersion"]
        stream = client.watch(
            pods_path(namespace),
            resource_version=version,
            field_selector=f"metadata.name={name}",
            server_timeout_seconds=600,
            read_timeout_seconds=600,
        )

        def follow() -> None:
            for event in stream:
                self._seen.put((time.monotonic(), event.object["metadata"].get("annotations", {})))

        threading.Thread(target=follow, daemon=True).start()

    def seconds_until(self, change: Mapping[str, str | None], is_there: Callable[[Annotations], bool]) -> float:
        """Seconds from the answer to the change until the watch shows what it leads to."""
        self._client.merge_patch(self._path, {"metadata": {"annotations": dict(change)}})
        began = time.monotonic()
        while True:
            seen, annotations = self._seen.get(timeout=LIMIT_SECONDS)
            if is_there(annotations):
                return max(0.0, seen - began)


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", type=Path, required=True, help="of an administrator")
    parser.add_argument("--namespace", required=True, help="the pod's namespace")
    parser.add_argument("--pod", required=True, help="a running pod without step_thread_core")
    parser.add_argument("--times", type=int, default=40, help="how often (default: %(default)s)")
    options = parser.parse_args()
    pod = _Pod(KubeClient(connect(options.kubeconfig)), options.namespace, options.pod)
    times: dict[str, list[float]] = {"watch alone": [], "annotate -> plan": [], "remove -> all gone": []}
    for number in range(options.times):
        echo = str(number)
        times["watch alone"].append(pod.seconds_until({ECHO: echo}, lambda a, echo=echo: a.get(ECHO) == echo))
        times["annotate -> plan"].append(pod.seconds_until({SETTING: "auto"}, lambda a: STATUS in a))
        times["remove -> all gone"].append(pod.seconds_until({SETTING: None}, lambda a: STATUS not in a))
    pod.seconds_until({ECHO: None}, lambda a: ECHO not in a)
    for name, values in times.items():
        cuts = statistics.quantiles(values, n=20)
        print(
            f"{name:20} p50 {statistics.median(values) * 1e3:7.1f} ms   p95 {cuts[18] * 1e3:7.1f} ms   "
            f"max {max(values) * 1e3:7.1f} ms"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
