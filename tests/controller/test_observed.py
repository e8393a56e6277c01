"""What the operator reads from a pod, and that odd pods are read too."""

import json
from pathlib import Path

import pytest
import yaml

from cpuplan.controller.announcements import event_object, finding_announcement, plan_announcement
from cpuplan.controller.findings import Surroundings, findings_of
from cpuplan.controller.observed import Injection, Verdict, observed_pod
from tests.controller.pods import BOOT, CREATED, CREATED_SECONDS, field_owner, injected, pod, pod_plan, verdict


def test_a_planned_pod_is_read() -> None:
    seen = observed_pod(pod("llm-0", plan=pod_plan("llm-0", generation=3)))
    assert (str(seen), seen.node, seen.setting, seen.status) == ("demo/llm-0", "gpu-1", "auto", "Pinned")
    assert seen.plan is not None
    assert (seen.plan.generation, seen.plan.boot_id, seen.plan.pod_uid) == (3, BOOT, "uid-llm-0")
    assert seen.created_at == CREATED_SECONDS


def test_the_index_entry_holds_the_whole_plan() -> None:
    plan = pod_plan("llm-0")
    seen = observed_pod(pod("llm-0", plan=plan))
    assert json.loads("{" + seen.index_entry + "}") == {
        "demo/llm-0": {"status": "Pinned", "why": "one core per worker", "plan": json.loads(plan.to_json())}
    }


def test_a_pod_that_only_asks_has_neither_plan_nor_index_entry() -> None:
    seen = observed_pod(pod("llm-0"))
    assert (seen.plan, seen.status, seen.index_entry, seen.plan_defect) == (None, None, "", "")


def test_a_text_that_is_no_plan_is_a_defect_and_keeps_its_status_in_the_index() -> None:
    seen = observed_pod(pod("llm-0", annotations={"cpuplan.dev/plan": "{}", "cpuplan.dev/status": "Pinned"}))
    assert "not a published plan" in seen.plan_defect
    assert json.loads("{" + seen.index_entry + "}")["demo/llm-0"]["plan"] is None


def test_a_plan_copied_from_another_pod_is_not_in_the_index() -> None:
    seen = observed_pod(pod("llm-0", plan=pod_plan("llm-0", uid="another")))
    assert json.loads("{" + seen.index_entry + "}")["demo/llm-0"]["plan"] is None


def test_times_come_from_the_managed_fields_of_the_annotation() -> None:
    owners = [
        field_owner("agent", "cpuplan.dev/status", "2026-05-04T10:00:40Z"),
        field_owner("kubectl-annotate", "step_thread_core", "2026-05-04T10:00:30Z"),
    ]
    seen = observed_pod(pod("llm-0", plan=pod_plan("llm-0"), managed_fields=owners))
    assert (seen.planned_at, seen.asked_at) == (CREATED_SECONDS + 40, CREATED_SECONDS + 30)


def test_the_time_of_scheduling_comes_from_the_condition() -> None:
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-05-04T10:00:05Z"}]
    assert observed_pod(pod("llm-0", status={"conditions": conditions})).scheduled_at == CREATED_SECONDS + 5


def test_a_pod_created_with_the_setting_was_due_for_injection() -> None:
    owners = [field_owner("kube-controller-manager", "step_thread_core", CREATED, owns_spec=True)]
    assert observed_pod(pod("llm-0", managed_fields=owners)).injection == Injection(False, True, "")


@pytest.mark.parametrize(
    "owner",
    [
        field_owner("kubectl-annotate", "step_thread_core", CREATED),
        field_owner("kubectl-client-side-apply", "step_thread_core", "2026-05-04T10:01:00Z", owns_spec=True),
        field_owner("kube-controller-manager", "another", CREATED, owns_spec=True),
    ],
    ids=["annotated in the same second", "written again later by its creator", "another annotation"],
)
def test_a_pod_that_was_perhaps_annotated_later_was_not_due(owner: dict[str, object]) -> None:
    assert not observed_pod(pod("llm-0", managed_fields=[owner])).injection.was_due


def test_an_injected_pod_is_recognised() -> None:
    owners = [field_owner("kube-controller-manager", "step_thread_core", CREATED, owns_spec=True)]
    assert observed_pod(pod("llm-0", managed_fields=owners, spec=injected())).injection == Injection(True, False, "")


@pytest.mark.parametrize(
    ("parts", "obstacle"),
    [
        ({"spec": {"os": {"name": "windows"}}}, "it is no Linux pod"),
        ({"annotations": {"kubernetes.io/config.mirror": "x"}}, "it is a static pod"),
        ({"spec": {"containers": [{"name": "cpuplan"}]}}, "it has a container of its own named cpuplan"),
        ({"spec": {"initContainers": [{"name": "cpuplan"}]}}, "it has a container of its own named cpuplan"),
        ({"spec": {"volumes": [{"name": "cpuplan", "emptyDir": {}}]}}, "it has a volume of its own named cpuplan"),
        (
            {"spec": {"containers": [{"name": "c", "volumeMounts": [{"mountPath": "/etc/cpuplan/"}]}]}},
            "it has a mount of its own at /etc/cpuplan/",
        ),
    ],
)
def test_what_keeps_the_policy_away_is_named(parts: dict[str, object], obstacle: str) -> None:
    assert observed_pod(pod("llm-0", **parts)).injection.obstacle == obstacle  # type: ignore[arg-type]


NOT_IN_THE_POD = {"alone-off", "alone-with-only-other-annotations-of-ours", "alone-without-annotation"}
"""Pairs whose pods the policy leaves alone for no obstacle: they do not ask; those of a namespace say so too."""


@pytest.mark.parametrize(
    "name",
    sorted(
        path.name
        for path in (Path(__file__).parents[1] / "policies" / "pairs").glob("alone-*")
        if path.name not in NOT_IN_THE_POD and "in-namespace" not in path.name
    ),
)
def test_whatever_keeps_the_real_policy_away_is_an_obstacle(name: str) -> None:
    text = (Path(__file__).parents[1] / "policies" / "pairs" / name / "in.yaml").read_text()
    content = yaml.safe_load(text)
    stored = {"namespace": "demo", "uid": "u", "creationTimestamp": CREATED}
    content["metadata"] = stored | content["metadata"]
    assert observed_pod(content).injection.obstacle != ""


def test_the_verdict_of_the_self_test_is_read() -> None:
    seen = observed_pod(pod("llm-0", annotations=verdict("llm-0", "fail", "memlock")))
    assert seen.verdict == Verdict("fail", "memlock")


@pytest.mark.parametrize(
    "text", ["", "not json", "[]", '{"verdict": "fail", "podUID": "another"}', pytest.param("[" * 100_000, id="deep")]
)
def test_a_verdict_that_is_none_or_of_another_pod_is_left_out(text: str) -> None:
    assert observed_pod(pod("llm-0", annotations={"cpuplan.dev/hostflag": text})).verdict is None


@pytest.mark.parametrize(
    ("key", "text"),
    [
        pytest.param("hostflag", '{"verdict": "fail", "fault": "\\ud800"}', id="verdict"),
        pytest.param("plan", pod_plan("llm-0").to_json().replace("pinned", "\\ud800"), id="reason of the plan"),
        pytest.param("plan", pod_plan("llm-0").to_json().replace('"engine"', '"\\ud800"'), id="container of the plan"),
    ],
)
def test_half_a_surrogate_pair_is_told_like_any_other_fault(key: str, text: str) -> None:
    """JSON can name what nothing can write: one such annotation must not end the process."""
    annotations = {"cpuplan.dev/status": "Pinned", f"cpuplan.dev/{key}": text}
    seen = observed_pod(pod("llm-0", annotations=annotations))
    announcements = [plan_announcement(seen)]
    announcements += [finding_announcement(seen, f) for f in findings_of(seen, Surroundings(0, 30, {}, None))]
    assert len([event_object(a, instance="a", now=0) for a in announcements if a is not None]) == 2


@pytest.mark.parametrize("part", ["annotations", "managedFields", "labels"])
def test_null_where_a_list_or_object_may_be_is_read_as_empty(part: str) -> None:
    assert observed_pod(pod("llm-0", metadata={part: None})).plan is None


def test_a_pod_with_nothing_but_a_name_is_read() -> None:
    bare = {"metadata": {"namespace": "a", "name": "b", "uid": "c", "creationTimestamp": CREATED}}
    assert str(observed_pod(bare)) == "a/b"


def test_states_that_differ_only_in_what_is_not_used_are_equal() -> None:
    ready = pod("a", status={"containerStatuses": [{"ready": True}]}, metadata={"resourceVersion": "2"})
    assert observed_pod(pod("a")) == observed_pod(ready)
