"""Pods parsed from the API's JSON, odd ones too."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cpuplan.kube.errors import UnexpectedAnswerError
from cpuplan.kube.pods import ClaimUse, ContainerKind, Pod, parse_pod

IDENTITY = {"namespace": "default", "name": "llm-0", "uid": "u-1"}


def pod(**parts: Any) -> Pod:
    """A pod of these parts, `metadata` added to its identity."""
    return parse_pod({**parts, "metadata": {**IDENTITY, **parts.get("metadata", {})}})


def test_only_our_annotations_and_the_users_key_are_kept() -> None:
    annotations = {"step_thread_core": "auto", "cpuplan.dev/workers": "0", "big": "x" * 1000}
    assert set(pod(metadata={"annotations": annotations}).annotations) == {"step_thread_core", "cpuplan.dev/workers"}


def test_containers_come_with_their_kind_limits_and_state() -> None:
    running = {"state": {"running": {}}, "ready": True}
    parsed = pod(
        spec={
            "initContainers": [{"name": "cpuplan"}, {"name": "proxy", "restartPolicy": "Always"}],
            "containers": [
                {
                    "name": "engine",
                    "resources": {"limits": {"cpu": "2500m", "nvidia.com/gpu": "2", "memory": "1Gi"}},
                }
            ],
        },
        status={
            "phase": "Running",
            "initContainerStatuses": [
                {"name": "cpuplan", "state": {"terminated": {"exitCode": 0, "message": "verdict"}}}
            ],
            "containerStatuses": [{"name": "engine", "containerID": "containerd://abc", **running, "restartCount": 2}],
        },
    )
    assert [(c.name, c.kind) for c in parsed.containers] == [
        ("cpuplan", ContainerKind.INIT),
        ("proxy", ContainerKind.SIDECAR),
        ("engine", ContainerKind.REGULAR),
    ]
    engine = parsed.containers[2]
    assert (engine.cpu_limit, engine.extended) == (2.5, {"nvidia.com/gpu": 2})
    assert (engine.container_id, engine.is_running, engine.is_ready, engine.restart_count) == ("abc", True, True, 2)
    assert parsed.containers[0].message == "verdict"


@pytest.mark.parametrize(
    ("of_pod", "of_container", "exit_code", "has_ended"),
    [
        ("Always", {}, 0, False),
        ("OnFailure", {}, 0, True),
        ("OnFailure", {}, 1, False),
        ("Never", {}, 1, True),
        ("Never", {"restartPolicy": "Always"}, 1, False),
        ("Always", {"restartPolicy": "Never"}, 1, True),
        ("Never", {"restartPolicyRules": [{"action": "Restart"}]}, 1, False),
        (None, {}, 0, False),
    ],
)
def test_a_container_has_ended_when_no_policy_starts_it_again(
    of_pod: str | None, of_container: dict[str, Any], exit_code: int, has_ended: bool
) -> None:
    state = {"name": "engine", "state": {"terminated": {"exitCode": exit_code}}}
    parsed = pod(
        spec={"restartPolicy": of_pod, "containers": [{"name": "engine", **of_container}]},
        status={"containerStatuses": [state]},
    )
    assert parsed.containers[0].has_ended is has_ended


def test_init_containers_and_sidecars_have_never_ended_for_good() -> None:
    ended = [{"name": name, "state": {"terminated": {"exitCode": 0}}} for name in ("cpuplan", "proxy")]
    parsed = pod(
        spec={
            "restartPolicy": "Never",
            "initContainers": [{"name": "cpuplan"}, {"name": "proxy", "restartPolicy": "Always"}],
        },
        status={"initContainerStatuses": ended},
    )
    assert [container.has_ended for container in parsed.containers] == [False, False]


def test_a_static_pod_has_the_cgroups_of_its_manifest() -> None:
    assert pod(metadata={"annotations": {"kubernetes.io/config.mirror": "hash"}}).cgroup_uid == "hash"
    assert pod().cgroup_uid == "u-1"


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("2", 2.0), ("500m", 0.5), (1, 1.0), ("1.5", 1.5), ("1e1", 10.0), ("2k", 2000.0)],
)
def test_cpu_quantities_are_cpus(text: object, cpus: float) -> None:
    assert pod(spec={"resources": {"limits": {"cpu": text}}}).cpu_limit == cpus


@pytest.mark.parametrize(
    "text", ["", "many", "0", "-1", "NaN", "Infinity", "1e999999999", None, [], {}, "1" * 5000, "5Q"]
)
def test_what_is_no_cpu_quantity_is_no_limit(text: object) -> None:
    assert pod(spec={"resources": {"limits": {"cpu": text}}}).cpu_limit is None


def test_claims_are_resolved_to_their_objects() -> None:
    parsed = pod(
        spec={
            "resourceClaims": [
                {"name": "gpu", "resourceClaimTemplateName": "t"},
                {"name": "shared", "resourceClaimName": "shared-claim"},
            ],
            "containers": [
                {"name": "engine", "resources": {"claims": [{"name": "gpu", "request": "one"}, {"name": "shared"}]}}
            ],
        },
        status={"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "llm-0-gpu-x"}]},
    )
    assert parsed.claim_names == {"gpu": "llm-0-gpu-x", "shared": "shared-claim"}
    assert parsed.containers[0].claims == (ClaimUse("gpu", "one"), ClaimUse("shared", None))


def test_the_claim_of_extended_resources_is_kept() -> None:
    status = {
        "extendedResourceClaimStatus": {
            "resourceClaimName": "made",
            "requestMappings": [
                {"containerName": "engine", "resourceName": "nvidia.com/gpu", "requestName": "container-0-request-0"}
            ],
        }
    }
    claim = pod(status=status).extended_claim
    assert claim is not None
    assert claim.claim_name == "made"
    assert claim.requests == {("engine", "nvidia.com/gpu"): "container-0-request-0"}


@pytest.mark.parametrize("missing", ["namespace", "name", "uid"])
def test_a_pod_without_identity_is_refused(missing: str) -> None:
    with pytest.raises(UnexpectedAnswerError, match="a pod without namespace, name or uid"):
        pod(metadata={missing: None})


SPEC_KEYS = ["containers", "initContainers", "resources", "limits", "claims", "name", "cpu", "nvidia.com/gpu"]
STATUS_KEYS = ["containerStatuses", "state", "terminated", "annotations", "containerID"]

JSON = st.recursive(
    st.sampled_from([None, True, 0, -1, 1 << 70, 1.5, "", "x", "3", "1e99", "a//b"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(SPEC_KEYS + STATUS_KEYS), inner, max_size=6)
    ),
    max_leaves=30,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(["spec", "status"]), JSON))
def test_any_json_is_a_pod_when_it_has_an_identity(parts: dict[str, Any]) -> None:
    assert parse_pod({**parts, "metadata": IDENTITY}).name == "llm-0"
