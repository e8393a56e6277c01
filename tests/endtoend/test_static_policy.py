"""The kubelet's static CPU policy on a real worker: exclusive CPUs are a mask, the shared pool is what they leave."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cpuplan.model.cpulist import format_cpu_list, parse_cpu_list
from cpuplan.model.podplan import ContainerPlan
from tests.cluster import fakegpus
from tests.cluster.fixture import Cluster
from tests.endtoend.conftest import Stage, until

KUBELET = "/var/lib/kubelet"
CONFIGURATION, KEPT, STATE = f"{KUBELET}/config.yaml", f"{KUBELET}/config.yaml.before", f"{KUBELET}/cpu_manager_state"

# On two CPUs a reservation of half of one leaves one that can be exclusive. The kubelet rewrites the cpusets of the
# shared pool once a period, which is 10 s by default.
STATIC = f"""
set -e
cp {CONFIGURATION} {KEPT}
sed -i '/^cpuManagerReconcilePeriod:/d' {CONFIGURATION}
cat >>{CONFIGURATION} <<'END'
cpuManagerPolicy: static
cpuManagerReconcilePeriod: 2s
kubeReserved: {{cpu: 500m}}
END
rm -f {STATE}
"""
AS_BEFORE = f"set -e; mv {KEPT} {CONFIGURATION}; rm -f {STATE}"


@pytest.fixture(scope="module")
def static_node(installed: Cluster) -> Iterator[str]:
    """A worker whose kubelet has the static policy; afterwards it has the policy that it had."""
    node = installed.workers[-1]
    with installed.kubelet_stopped(node):
        installed.on_node(node, "sh", "-c", STATIC)
    yield node
    with installed.kubelet_stopped(node):
        installed.on_node(node, "sh", "-c", AS_BEFORE)


def make_pod(stage: Stage, name: str, node: str, resources: dict[str, dict[str, str]]) -> None:
    """A pod on the node that asks for a plan; its container prints the CPUs that it may run on."""
    container = {
        "name": "engine",
        "image": stage.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", "grep Cpus_allowed_list /proc/self/status; sleep infinity"],
        "resources": resources,
    }
    stage.cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": stage.namespace, "annotations": {"step_thread_core": "auto"}},
            "spec": {
                "containers": [container],
                "nodeSelector": {"kubernetes.io/hostname": node},
                "terminationGracePeriodSeconds": 0,
            },
        }
    )


def plan_of(stage: Stage, name: str) -> ContainerPlan:
    """The plan of the pod's container as it is now."""
    plan = stage.plan(name).container("engine")
    assert plan is not None
    return plan


def mask_of(stage: Stage, name: str) -> str:
    """The mask in the pod's plan."""
    return format_cpu_list(plan_of(stage, name).mask)


def test_exclusive_cpus_are_kept_and_planned_and_the_shared_pool_follows(stage: Stage, static_node: str) -> None:
    everything = parse_cpu_list(stage.cluster.on_node(static_node, "cat", "/sys/devices/system/cpu/online").strip())
    whole = format_cpu_list(everything)
    make_pod(stage, "shared", static_node, {"requests": {"cpu": "50m"}, "limits": {fakegpus.RESOURCE: "1"}})
    stage.until_running("shared")
    until(lambda: mask_of(stage, "shared") == whole, "alone, the pod has the node's shared pool")
    limits = {"cpu": "1", "memory": "128Mi", fakegpus.RESOURCE: "1"}
    make_pod(stage, "exclusive", static_node, {"requests": limits, "limits": limits})
    stage.until_running("exclusive")
    pod = stage.pod("exclusive")
    assert pod["status"]["qosClass"] == "Guaranteed"
    assert pod["spec"]["initContainers"][0]["resources"]["limits"] == {"cpu": "900m", "memory": "128Mi"}
    allowed = until(lambda: stage.cluster.kubectl("logs", "-n", stage.namespace, "exclusive"), "the pod has printed")
    own = allowed.partition(":")[2].strip()
    assert len(parse_cpu_list(own)) == 1
    until(lambda: mask_of(stage, "exclusive") == own, "the plan's mask is the exclusive CPU")
    plan = plan_of(stage, "exclusive")
    assert (plan.quota, plan.usable, plan.pinned) == (None, 1, frozenset())
    rest = format_cpu_list(everything - parse_cpu_list(own))
    until(lambda: mask_of(stage, "shared") == rest, "the mask of the shared pod shrinks")
    stage.delete("exclusive")
    until(lambda: mask_of(stage, "shared") == whole, "the mask of the shared pod is whole again")
