"""What is said to be missing or wrong, and what is not."""

import dataclasses

import pytest

from cpuplan.controller.findings import Finding, FindingKind, Surroundings, count_by_kind, findings_of
from cpuplan.controller.observed import observed_pod
from cpuplan.controller.startup import AgentPod
from tests.controller.pods import (
    BOOT,
    CREATED,
    CREATED_SECONDS,
    Json,
    field_owner,
    injected,
    planned,
    pod,
    pod_plan,
    verdict,
    waits,
)

AROUND = Surroundings(
    now=CREATED_SECONDS + 30,
    plan_wait_seconds=30,
    boot_ids={"gpu-1": BOOT},
    agents={"gpu-1": AgentPod("cpuplan", "cpuplan-agent-x", "")},
)
CREATED_ANNOTATED = [field_owner("kube-controller-manager", "step_thread_core", CREATED, owns_spec=True)]


def found(content: Json, around: Surroundings = AROUND) -> list[Finding]:
    """The findings of a pod."""
    return findings_of(observed_pod(content), around)


def text(content: Json, around: Surroundings = AROUND) -> str:
    """The text of the only finding of a pod."""
    (finding,) = found(content, around)
    return finding.text


def test_a_planned_pod_gives_no_findings() -> None:
    assert found(planned("llm-0")) == []


def test_a_pod_without_a_plan_is_not_reported_before_its_time() -> None:
    assert found(pod("llm-0"), dataclasses.replace(AROUND, now=CREATED_SECONDS + 29.9)) == []


def test_a_pod_without_a_plan_on_a_node_without_an_agent_says_so() -> None:
    assert text(pod("llm-0", node="gpu-2")) == (
        "no plan 30 s after the pod was scheduled or annotated: no cpuplan agent pod runs on node gpu-2; "
        "let the agent's DaemonSet select the node"
    )


def test_a_pod_without_a_plan_beside_an_agent_points_to_its_log() -> None:
    assert text(pod("llm-0")) == (
        "no plan 30 s after the pod was scheduled or annotated: see the log of the cpuplan agent on node gpu-1"
    )


def test_a_pod_without_a_plan_whose_agent_does_not_start_names_the_agents_pod_and_its_state() -> None:
    agents = {"gpu-1": AgentPod("cpuplan", "cpuplan-agent-x", "Pending, ImagePullBackOff")}
    assert text(pod("llm-0"), dataclasses.replace(AROUND, agents=agents)) == (
        "no plan 30 s after the pod was scheduled or annotated: the cpuplan agent pod cpuplan/cpuplan-agent-x of node "
        "gpu-1 does not run (Pending, ImagePullBackOff); kubectl describe pod -n cpuplan cpuplan-agent-x says why"
    )


def test_another_state_of_the_agents_pod_is_another_finding() -> None:
    states = [{"gpu-1": AgentPod("cpuplan", "cpuplan-agent-x", state)} for state in ("Pending", "CrashLoopBackOff", "")]
    keys = [found(pod("llm-0"), dataclasses.replace(AROUND, agents=agents))[0].key for agents in states]
    assert len(set(keys)) == 3


def test_a_pod_without_a_plan_asks_for_the_agent_where_agents_are_not_known() -> None:
    around = dataclasses.replace(AROUND, agents=None)
    assert text(pod("llm-0"), around).endswith("is a cpuplan agent running on node gpu-1?")


def test_the_wait_of_the_init_container_is_named() -> None:
    assert text(pod("llm-0", spec=injected())).endswith("; its init container waits 15 s at every start")


def test_the_wait_counts_from_the_annotation() -> None:
    owners = [field_owner("kubectl-annotate", "step_thread_core", "2026-05-04T10:00:20Z")]
    assert found(pod("llm-0", managed_fields=owners)) == []


def test_the_wait_counts_from_scheduling() -> None:
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-05-04T10:00:20Z"}]
    assert found(pod("llm-0", status={"conditions": conditions})) == []


@pytest.mark.parametrize(
    "content",
    [
        pod("llm-0", node=""),
        pod("llm-0", status={"phase": "Succeeded"}),
        pod("llm-0", metadata={"deletionTimestamp": CREATED}),
        pod("llm-0", setting=None),
    ],
    ids=["not scheduled", "ended", "being deleted", "setting removed"],
)
def test_pods_that_wait_for_nobody_are_not_reported(content: Json) -> None:
    assert found(content) == []


def test_a_text_that_is_no_plan_is_reported() -> None:
    content = pod("llm-0", annotations={"cpuplan.dev/plan": "banana", "cpuplan.dev/status": "Pinned"})
    assert "not a published plan" in text(content)
    assert text(content).endswith("; restart the agent on node gpu-1 to rewrite it")


def test_a_plan_of_another_pod_is_stale() -> None:
    assert text(pod("llm-0", plan=pod_plan("llm-0", uid="uid-other"))) == (
        "the plan is for pod UID uid-other, this pod's is uid-llm-0: it was copied with the manifest and is not used; "
        "the agent on node gpu-1 has to replace it"
    )


def test_a_plan_of_an_earlier_boot_is_stale() -> None:
    assert text(pod("llm-0", plan=pod_plan("llm-0", boot_id="earlier"))) == (
        f"the plan is from boot earlier of node gpu-1, which now runs boot {BOOT}: the agent there has not planned "
        "since the restart"
    )


@pytest.mark.parametrize("boot_ids", [{}, {"gpu-1": ""}], ids=["node not asked", "node does not say"])
def test_an_unknown_boot_makes_no_plan_stale(boot_ids: dict[str, str]) -> None:
    content = pod("llm-0", plan=pod_plan("llm-0", boot_id="earlier"))
    assert found(content, dataclasses.replace(AROUND, boot_ids=boot_ids)) == []


def test_a_pod_created_annotated_and_not_injected_is_reported() -> None:
    content = pod("llm-0", plan=pod_plan("llm-0"), managed_fields=CREATED_ANNOTATED)
    assert text(content) == (
        "created with step_thread_core but without the init container and the plan volume (the injection policy did "
        "not act: is it installed, and is the namespace one that it serves?); the plan is in the annotations only"
    )


def test_the_obstacle_to_injection_is_named() -> None:
    content = pod(
        "llm-0",
        plan=pod_plan("llm-0"),
        managed_fields=CREATED_ANNOTATED,
        spec={"volumes": [{"name": "cpuplan", "emptyDir": {}}]},
    )
    assert "(it has a volume of its own named cpuplan)" in text(content)


@pytest.mark.parametrize(
    "content",
    [
        pod("llm-0", plan=pod_plan("llm-0"), managed_fields=CREATED_ANNOTATED, spec=injected()),
        pod("llm-0", setting="off", plan=pod_plan("llm-0"), managed_fields=CREATED_ANNOTATED),
        pod("llm-0", plan=pod_plan("llm-0"), managed_fields=[field_owner("kubectl", "step_thread_core", CREATED)]),
    ],
    ids=["injected", "switched off", "annotated later"],
)
def test_pods_that_need_no_injection_are_not_reported(content: Json) -> None:
    assert found(content) == []


def test_an_image_that_does_not_come_is_told_with_what_to_check_and_how_to_correct_the_pod() -> None:
    content = pod("llm-0", plan=pod_plan("llm-0"), spec=injected(image="cpuplan:9"), status=waits("ImagePullBackOff"))
    assert text(content) == (
        "the init container cpuplan waits: ImagePullBackOff of cpuplan:9; check the chart's image.repository and "
        "image.tag, which the agents run too, and that the node may pull it (the chart's imagePullSecrets are not "
        "those of this pod); then create the pod anew, or correct it with: kubectl set image -n demo pod/llm-0 "
        "cpuplan=IMAGE"
    )


def test_a_failed_pull_and_the_wait_for_the_next_one_are_one_finding() -> None:
    reasons = ("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable")
    contents = [pod("llm-0", plan=pod_plan("llm-0"), spec=injected(), status=waits(reason)) for reason in reasons]
    assert len({tuple(found(content)) for content in contents}) == 1


def test_another_image_that_does_not_come_is_another_finding() -> None:
    contents = [
        pod("llm-0", plan=pod_plan("llm-0"), spec=injected(image=image), status=waits("ErrImagePull"))
        for image in ("cpuplan:9", "cpuplan:10")
    ]
    assert len({found(content)[0].key for content in contents}) == 2


def test_an_init_container_that_cannot_be_made_is_told_with_the_kubelets_reason() -> None:
    content = pod("llm-0", plan=pod_plan("llm-0"), spec=injected(), status=waits("CreateContainerConfigError"))
    assert text(content) == (
        "the init container cpuplan waits: CreateContainerConfigError; kubectl describe pod -n demo llm-0 has the "
        "kubelet's words, and a pod created without step_thread_core has no such container"
    )


def test_an_init_container_that_does_not_start_is_not_said_to_wait_for_the_plan() -> None:
    kinds_and_texts = [(f.kind, f.text) for f in found(pod("llm-0", spec=injected(), status=waits("ErrImagePull")))]
    assert [kind for kind, _ in kinds_and_texts] == [FindingKind.NO_PLAN, FindingKind.NOT_STARTED]
    assert "at every start" not in kinds_and_texts[0][1]


@pytest.mark.parametrize(
    "content",
    [
        pod("llm-0", plan=pod_plan("llm-0"), spec=injected(), status=waits("PodInitializing")),
        pod("llm-0", plan=pod_plan("llm-0"), spec=injected(), status=waits("ErrImagePull", container="fetch")),
        pod(
            "llm-0",
            plan=pod_plan("llm-0"),
            spec={"initContainers": [{"name": "cpuplan"}]},
            status=waits("ErrImagePull"),
        ),
        pod("llm-0", spec=injected(), status={**waits("ErrImagePull"), "phase": "Failed"}),
    ],
    ids=["takes its time", "another init container", "a container that is not ours", "ended"],
)
def test_other_waits_are_not_reported(content: Json) -> None:
    assert found(content) == []


@pytest.mark.parametrize(
    ("outcome", "what"),
    [
        ("fail", "the hostflag self-test failed (fault memlock);"),
        ("stuck", "the hostflag self-test is stuck: the device does not observe host stores (fault memlock);"),
    ],
)
def test_a_self_test_that_did_not_pass_is_reported(outcome: str, what: str) -> None:
    content = pod("llm-0", plan=pod_plan("llm-0"), annotations=verdict("llm-0", outcome, "memlock"))
    assert text(content).startswith(what)


def test_an_init_container_that_crashed_is_reported_as_such() -> None:
    content = pod("llm-0", plan=pod_plan("llm-0"), annotations=verdict("llm-0", "fail", "init-crashed"))
    assert text(content) == (
        "the init container cpuplan ended without a verdict of the hostflag self-test; see its exit code "
        "(137 is often its memory limit) and its log"
    )


@pytest.mark.parametrize("outcome", ["pass", "untested", ""])
def test_other_verdicts_are_not_reported(outcome: str) -> None:
    assert found(pod("llm-0", plan=pod_plan("llm-0"), annotations=verdict("llm-0", outcome))) == []


def test_kinds_without_findings_are_counted_as_none() -> None:
    counts = count_by_kind(found(pod("llm-0", node="gpu-2")))
    assert counts == {kind: int(kind is FindingKind.NO_PLAN) for kind in FindingKind}
