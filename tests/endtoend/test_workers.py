"""Plans on real workers: real kubelets, real cgroups, GPUs of a fake device plugin."""

from __future__ import annotations

import json

from cpuplan.model.podplan import PodPlan, Status
from tests.cluster import fakegpus
from tests.endtoend.conftest import PLAN_KEY, STATUS_KEY, Stage, is_refused, until

OURS = "cpuplan.dev/"


def test_a_running_pod_that_is_annotated_gets_its_plan_with_real_cgroup_facts(stage: Stage) -> None:
    stage.make_pod("llm", limits={"cpu": "1500m"})
    stage.until_running("llm")
    stage.annotate("llm", "step_thread_core=auto")
    plan = stage.plan("llm").container("engine")
    assert plan is not None
    assert plan.quota == 1.5
    assert plan.usable == 1
    assert len(plan.devices) == 1
    assert plan.status is Status.NOT_PINNED
    assert stage.labels("llm")["cpuplan.dev/managed"] == "true"


def test_a_pod_created_with_the_annotation_reads_its_plan_before_its_first_command(stage: Stage) -> None:
    stage.make_pod(
        "llm",
        annotations={"step_thread_core": "auto"},
        command="cat /etc/cpuplan/plan; echo; cat /etc/cpuplan/uid; echo; echo end; sleep infinity",
    )
    stage.until_running("llm")
    uid = stage.pod("llm")["metadata"]["uid"]
    logs = ("logs", "-n", stage.namespace, "llm", "-c", "engine")
    until(lambda: "end" in stage.cluster.kubectl(*logs), "the container has written what it read")
    lines = stage.cluster.kubectl(*logs).splitlines()
    plan = PodPlan.from_json(lines[0])
    assert plan.pod_uid == uid
    assert lines[1] == uid


def test_removing_the_annotation_removes_all_of_ours_and_the_label(stage: Stage) -> None:
    stage.make_pod("llm", annotations={"step_thread_core": "auto"})
    stage.plan("llm")
    stage.annotate("llm", "step_thread_core-")
    until(lambda: not [key for key in stage.annotations("llm") if key.startswith(OURS)], "our annotations are gone")
    assert "cpuplan.dev/managed" not in stage.labels("llm")


def test_off_is_answered_and_pins_nothing(stage: Stage) -> None:
    stage.make_pod("llm", annotations={"step_thread_core": "off"})
    until(lambda: stage.annotations("llm").get(STATUS_KEY) == "Off", "the pod says Off")
    assert stage.plan("llm").container("engine").pinned == frozenset()  # type: ignore[union-attr]


def test_a_cpu_number_outside_the_mask_is_an_error_that_names_the_mask(stage: Stage) -> None:
    stage.make_pod("llm", annotations={"step_thread_core": "9999"})
    until(lambda: stage.annotations("llm").get(STATUS_KEY) == "Error", "the pod says Error")
    assert "CPU 9999 is outside the mask (0" in stage.annotations("llm")["cpuplan.dev/why"]


def restart_agents(stage: Stage) -> None:
    """Lets the agents read their nodes anew: GPUs that come and go are seen at a slow look only."""
    agents = ("-n", "cpuplan", "daemonset/cpuplan-agent")
    stage.cluster.kubectl("rollout", "restart", *agents)
    stage.cluster.kubectl("rollout", "status", *agents, "--timeout=90s")


def test_one_gpu_on_two_cpus_would_pin_all_and_on_more_it_is_pinned(stage: Stage) -> None:
    stage.cluster.make_gpu_nodes(devices=1)
    restart_agents(stage)
    try:
        stage.make_pod("llm", annotations={"step_thread_core": "auto"})
        plan = stage.plan("llm").container("engine")
        assert plan is not None
        assert plan.reason == {2: "would-pin-all"}.get(len(plan.mask), "pinned")
    finally:
        stage.delete("llm")
        stage.cluster.make_gpu_nodes()
        restart_agents(stage)


def test_a_bad_value_is_refused_with_what_is_allowed(stage: Stage) -> None:
    stage.make_pod("llm")
    text = is_refused(lambda: stage.annotate("llm", "step_thread_core=banana"))
    assert "off, auto or a CPU number" in text


def test_a_user_who_writes_a_plan_is_refused(stage: Stage) -> None:
    stage.make_pod("llm")
    assert is_refused(lambda: stage.annotate("llm", f"{PLAN_KEY}={{}}"))


def test_a_copied_manifest_with_our_annotations_still_works(stage: Stage) -> None:
    stage.make_pod("llm", annotations={"step_thread_core": "auto", PLAN_KEY: "stolen", STATUS_KEY: "Pinned"})
    plan = stage.plan("llm")
    assert plan.pod_uid == stage.pod("llm")["metadata"]["uid"]


def test_the_operator_tells_an_event_and_keeps_the_shared_index(stage: Stage) -> None:
    stage.make_pod("llm", annotations={"step_thread_core": "auto"})
    node = stage.plan("llm").node

    def indexed() -> object:
        data = stage.cluster.get("configmap", "-n", "cpuplan", "cpuplan").get("data", {})
        return json.loads(data.get(node, "{}")).get(f"{stage.namespace}/llm")

    until(indexed, "the shared ConfigMap has the pod's plan")
    until(
        lambda: [
            event["reason"]
            for event in stage.cluster.get("events", "-n", stage.namespace, "--field-selector=involvedObject.name=llm")[
                "items"
            ]
            if event["reason"] == "PlanMade"
        ],
        "an Event says that the plan was made",
    )
    stage.delete("llm")
    until(lambda: not indexed(), "the shared ConfigMap forgets the pod")


def test_two_pods_get_different_devices_and_every_device_is_placed(stage: Stage) -> None:
    stage.make_pod("a", annotations={"step_thread_core": "auto"}, gpus=2)
    stage.make_pod("b", annotations={"step_thread_core": "auto"}, gpus=2)
    plans = [stage.plan(name).container("engine") for name in ("a", "b")]
    devices = [device for plan in plans if plan is not None for device in plan.devices]
    addresses = [worker.address for plan in plans if plan is not None for worker in plan.workers]
    assert len(set(devices)) == len(devices) == 2 * 2
    assert None not in addresses


def test_a_pod_without_a_device_is_told_so(stage: Stage) -> None:
    stage.make_pod("llm", annotations={"step_thread_core": "auto"}, gpus=0)
    plan = stage.plan("llm").container("engine")
    assert plan is not None
    assert plan.status is Status.NOT_PINNED
    assert plan.devices == ()


def test_fake_gpus_are_what_the_kubelet_counts(stage: Stage) -> None:
    assert set(fakegpus.allocatable(stage.cluster.kubectl).values()) == {fakegpus.DEVICES_PER_NODE}
