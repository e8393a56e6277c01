"""What the chart makes of its values."""

from __future__ import annotations

import functools
import operator
import subprocess
from typing import Any

import pytest

from charts import generate
from tests.apiserver import find_program
from tests.chart.rendering import CHART, Manifest, manifests, one, rendered

WITH_MUTATING = "policies.mutating=enabled"
MAP = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
EVERYTHING = (
    WITH_MUTATING,
    "namespace.create=true",
    "operator.replicas=2",
    "metrics.service.enabled=true",
    "metrics.podMonitor.enabled=true",
    "networkPolicy.enabled=true",
    "imagePullSecrets={pull}",
)


def kinds(objects: list[Manifest]) -> list[str]:
    """kind/name of each object, sorted."""
    return sorted(f"{item['kind']}/{item['metadata']['name']}" for item in objects)


def agent_container(*settings: str) -> Any:
    """The agent's container with these settings."""
    return one(manifests(*settings), "DaemonSet", "cpuplan-agent")["spec"]["template"]["spec"]["containers"][0]


def test_the_defaults_install_the_processes_their_rights_and_the_policies() -> None:
    assert kinds(manifests(WITH_MUTATING)) == [
        "ClusterRole/cpuplan-agent",
        "ClusterRole/cpuplan-operator",
        "ClusterRoleBinding/cpuplan-agent",
        "ClusterRoleBinding/cpuplan-operator",
        "DaemonSet/cpuplan-agent",
        "Deployment/cpuplan-operator",
        "FlowSchema/cpuplan-agent",
        "MutatingAdmissionPolicy/cpuplan-injection",
        "MutatingAdmissionPolicy/cpuplan-label",
        "MutatingAdmissionPolicy/cpuplan-stripping",
        "MutatingAdmissionPolicyBinding/cpuplan-injection",
        "MutatingAdmissionPolicyBinding/cpuplan-label",
        "MutatingAdmissionPolicyBinding/cpuplan-stripping",
        "Role/cpuplan-operator",
        "RoleBinding/cpuplan-operator",
        "ServiceAccount/cpuplan-agent",
        "ServiceAccount/cpuplan-operator",
        "ValidatingAdmissionPolicy/cpuplan-fence",
        "ValidatingAdmissionPolicy/cpuplan-hands-off",
        "ValidatingAdmissionPolicy/cpuplan-misplaced",
        "ValidatingAdmissionPolicy/cpuplan-values",
        "ValidatingAdmissionPolicyBinding/cpuplan-fence",
        "ValidatingAdmissionPolicyBinding/cpuplan-hands-off",
        "ValidatingAdmissionPolicyBinding/cpuplan-misplaced",
        "ValidatingAdmissionPolicyBinding/cpuplan-values",
    ]


def test_the_options_add_their_objects() -> None:
    added = set(kinds(manifests(*EVERYTHING))) - set(kinds(manifests(WITH_MUTATING)))
    assert sorted(added) == [
        "Namespace/cpuplan",
        "NetworkPolicy/cpuplan-agent",
        "NetworkPolicy/cpuplan-operator",
        "PodDisruptionBudget/cpuplan-operator",
        "PodMonitor/cpuplan-agent",
        "PodMonitor/cpuplan-operator",
        "Service/cpuplan-agent",
        "Service/cpuplan-operator",
    ]


@pytest.mark.parametrize(
    ("arguments", "is_installed"),
    [
        (["--api-versions", MAP], True),
        ([], False),
        (["--api-versions", MAP, "--set", "policies.mutating=disabled"], False),
        (["--set", "policies.mutating=enabled"], True),
    ],
    ids=["the API server has it", "it has not", "disabled", "enabled"],
)
def test_mutating_policies_follow_the_api_server_unless_told(arguments: list[str], is_installed: bool) -> None:
    has_one = any(item["kind"] == "MutatingAdmissionPolicy" for item in manifests(arguments=arguments))
    assert has_one == is_installed


def test_injection_can_be_left_out_alone() -> None:
    left = kinds(manifests(WITH_MUTATING, "injection.enabled=false"))
    assert "MutatingAdmissionPolicy/cpuplan-injection" not in left
    assert "MutatingAdmissionPolicyBinding/cpuplan-injection" not in left
    assert "MutatingAdmissionPolicy/cpuplan-label" in left


def test_every_binding_binds_a_policy_of_its_name() -> None:
    objects = manifests(*EVERYTHING)
    bound = [item["spec"]["policyName"] for item in objects if item["kind"].endswith("PolicyBinding")]
    policies = [item["metadata"]["name"] for item in objects if item["kind"].endswith("AdmissionPolicy")]
    assert sorted(bound) == sorted(policies)


def test_every_template_holds_one_object() -> None:
    sources = [line for line in rendered(*EVERYTHING).splitlines() if line.startswith("# Source: ")]
    assert len(sources) == len(set(sources)) == len(manifests(*EVERYTHING))


def test_what_guards_fails_closed_and_what_adds_or_warns_fails_open() -> None:
    policies = [item for item in manifests(WITH_MUTATING) if item["kind"].endswith("AdmissionPolicy")]
    assert {item["metadata"]["name"]: item["spec"]["failurePolicy"] for item in policies} == {
        "cpuplan-fence": "Fail",
        "cpuplan-hands-off": "Fail",
        "cpuplan-values": "Fail",
        "cpuplan-misplaced": "Ignore",
        "cpuplan-injection": "Ignore",
        "cpuplan-label": "Ignore",
        "cpuplan-stripping": "Ignore",
    }


def test_guards_refuse_and_the_policy_about_places_only_warns() -> None:
    bindings = [item for item in manifests() if item["kind"] == "ValidatingAdmissionPolicyBinding"]
    assert {item["metadata"]["name"]: item["spec"]["validationActions"] for item in bindings} == {
        "cpuplan-fence": ["Deny"],
        "cpuplan-hands-off": ["Deny"],
        "cpuplan-values": ["Deny"],
        "cpuplan-misplaced": ["Warn"],
    }


def test_a_digest_outranks_the_tag_everywhere() -> None:
    digest = "sha256:" + "0" * 64
    text = rendered(
        WITH_MUTATING, "image.repository=example.test/team/cpuplan", "image.tag=x", f"image.digest={digest}"
    )
    assert text.count(f'"example.test/team/cpuplan@{digest}"') == 3
    assert "cpuplan:" not in text.replace("serviceaccount:cpuplan:", "")


def test_the_tag_is_the_chart_s_version_by_default() -> None:
    assert agent_container()["image"] == "cpuplan:0.1.0"


def test_the_agent_is_told_only_what_is_set() -> None:
    assert agent_container()["args"] == [
        "agent",
        "--sysfs-root=/sys",
        "--proc-root=/proc",
        "--cgroup-root=/host/cgroup",
        "--podresources-socket=/var/lib/kubelet/pod-resources/kubelet.sock",
        "--metrics-address=0.0.0.0:9465",
        "--log-level=info",
        "--device-resources=nvidia.com/gpu,nvidia.com/gpu.shared,nvidia.com/mig-*,amd.com/gpu,gpu.intel.com/i915,gpu.intel.com/xe",
        "--device-drivers=gpu.nvidia.com,gpu.amd.com,gpu.intel.com",
    ]
    settings = (
        "agent.reservedCpus=0-1\\,64",
        "agent.maxPinnedPerPod=12",
        "agent.topologyOverride=/etc/topology.toml",
        "agent.extraArgs={--resync-seconds=60}",
    )
    assert agent_container(*settings)["args"][9:] == [
        "--reserved-cpus=0-1,64",
        "--max-pinned-per-pod=12",
        "--topology-override=/etc/topology.toml",
        "--resync-seconds=60",
    ]


def test_the_agent_has_root_s_id_and_nothing_else_of_root() -> None:
    pod = one(manifests(), "DaemonSet", "cpuplan-agent")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(pod)


def test_the_agent_mounts_two_folders_of_the_node_read_only() -> None:
    pod = one(manifests(), "DaemonSet", "cpuplan-agent")["spec"]["template"]["spec"]
    assert {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]} == {
        "cgroup": "/sys/fs/cgroup",
        "pod-resources": "/var/lib/kubelet/pod-resources",
    }
    assert [(mount["readOnly"], mount["recursiveReadOnly"]) for mount in pod["containers"][0]["volumeMounts"]] == [
        (True, "IfPossible"),
        (True, "IfPossible"),
    ]


def test_the_operator_meets_the_restricted_pod_security_level() -> None:
    pod = one(manifests(), "Deployment", "cpuplan-operator")["spec"]["template"]["spec"]
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "volumes" not in pod


def test_settings_of_a_simulated_node_reach_the_agent() -> None:
    """A folder with a machine's trees, mounted beside the real ones."""
    settings = (
        "agent.sysfsRoot=/machine/sys",
        "agent.procRoot=/machine/proc",
        "agent.podresourcesDir=/run/fake",
        "agent.extraVolumes[0].name=machine",
        "agent.extraVolumes[0].hostPath.path=/srv/machine",
        "agent.extraVolumeMounts[0].name=machine",
        "agent.extraVolumeMounts[0].mountPath=/machine",
        "agent.extraEnv[0].name=CPUPLAN_X",
        "agent.extraEnv[0].value=y",
    )
    pod = one(manifests(*settings), "DaemonSet", "cpuplan-agent")["spec"]["template"]["spec"]
    assert pod["volumes"][1]["hostPath"]["path"] == "/run/fake"
    assert pod["volumes"][2] == {"name": "machine", "hostPath": {"path": "/srv/machine"}}
    assert pod["containers"][0]["volumeMounts"][2] == {"name": "machine", "mountPath": "/machine"}
    assert pod["containers"][0]["env"][1] == {"name": "CPUPLAN_X", "value": "y"}
    assert "--sysfs-root=/machine/sys" in pod["containers"][0]["args"]


@pytest.mark.parametrize(
    ("kind", "selector"),
    [
        ("DaemonSet", ("selector", "matchLabels")),
        ("Service", ("selector",)),
        ("PodMonitor", ("selector", "matchLabels")),
        ("NetworkPolicy", ("podSelector", "matchLabels")),
    ],
)
def test_whatever_selects_the_agents_selects_them(kind: str, selector: tuple[str, ...]) -> None:
    objects = manifests(*EVERYTHING)
    labels = one(objects, "DaemonSet", "cpuplan-agent")["spec"]["template"]["metadata"]["labels"]
    chosen = functools.reduce(operator.getitem, selector, one(objects, kind, "cpuplan-agent")["spec"])
    assert chosen == {"app.kubernetes.io/name": "cpuplan", "app.kubernetes.io/component": "agent"}
    assert chosen.items() <= labels.items()


@pytest.mark.parametrize(
    ("kind", "selector"),
    [
        ("Deployment", ("selector", "matchLabels")),
        ("Service", ("selector",)),
        ("PodMonitor", ("selector", "matchLabels")),
        ("NetworkPolicy", ("podSelector", "matchLabels")),
        ("PodDisruptionBudget", ("selector", "matchLabels")),
    ],
)
def test_whatever_selects_the_operator_selects_it(kind: str, selector: tuple[str, ...]) -> None:
    objects = manifests(*EVERYTHING)
    labels = one(objects, "Deployment", "cpuplan-operator")["spec"]["template"]["metadata"]["labels"]
    chosen = functools.reduce(operator.getitem, selector, one(objects, kind, "cpuplan-operator")["spec"])
    assert chosen == {"app.kubernetes.io/name": "cpuplan", "app.kubernetes.io/component": "operator"}
    assert chosen.items() <= labels.items()


def test_lint_has_nothing_to_say() -> None:
    done = subprocess.run(
        [find_program("helm"), "lint", "--strict", CHART], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_readme_lists_every_value_with_its_default() -> None:
    assert generate.readme() == (CHART / "README.md").read_text()


def test_install_yaml_is_the_chart_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELM", str(find_program("helm")))
    assert generate.install_manifest() == generate.INSTALL.read_text(), "run `python charts/generate.py`"
