"""The agent on whole nodes: real trees, a real gRPC socket, a real HTTP API, and the product's own parts."""

import json
from pathlib import Path

import grpc
import pytest

from cpuplan.inprocess.current import deployment_plan
from cpuplan.kube.annotations import WORKERS
from cpuplan.model.cpulist import format_cpu_list, parse_cpu_list
from tests.agent.node import MakeNode, TestNode, as_patch

FIRST, SECOND = "0000:1b:00.0", "0000:43:00.0"
ON_THE_OTHER_SOCKET = "0000:9d:00.0"


@pytest.fixture
def node(make_node: MakeNode) -> TestNode:
    """A two-socket server with eight GPUs."""
    return make_node("h100-server")


def test_alone_a_pods_plan_is_the_deployment_plan(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST, ON_THE_OTHER_SOCKET]})
    node.turn()
    mask = parse_cpu_list("0-223")
    alone = deployment_plan(
        "auto",
        [FIRST, ON_THE_OTHER_SOCKET],
        mask=mask,
        usable=224,
        pci_root=node.root.pci_folder,
        siblings=lambda cpu: parse_cpu_list(f"{cpu % 112},{cpu % 112 + 112}"),
    )
    plan = node.plan("llm-0").container("engine")
    assert plan is not None
    assert [worker.cpus for worker in plan.workers] == [step.cpus for step in alone.workers if step is not None]
    assert (plan.result, plan.reason, plan.pools) == (alone.result, "pinned", alone.pools)


def test_everything_a_plan_came_from_stands_in_it(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]}, cpu_limit="12500m")
    node.turn()
    plan = node.plan("llm-0")
    (container,) = [container for _, container in plan.containers]
    assert (plan.generation, plan.node, len(plan.boot_id)) == (1, "n1", 36)
    assert (format_cpu_list(container.mask), container.quota, container.usable) == ("0-223", 12.5, 12)
    assert [worker.address for worker in container.workers] == [FIRST]
    assert container.workers[0].uuid == container.devices[0]
    assert container.devices[0].startswith("GPU-")


def test_a_new_plan_is_one_patch_with_the_label(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    patches = node.turn()
    assert len(patches) == 1
    assert node.status("llm-0") == "Pinned"
    assert node.labels("llm-0") == {"cpuplan.dev/managed": "true"}
    assert patches[0].headers["content-type"] == "application/merge-patch+json"


def test_nothing_is_written_when_nothing_changes(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.add_pod("not-ours", setting=None)
    node.turn()
    node.clock.advance(100)
    assert node.turn() == []
    node.annotate("not-ours", foreign="x")
    assert node.turn() == []


def test_pods_without_the_annotation_are_left_alone(node: TestNode) -> None:
    node.add_pod("other", setting=None, gpus={"engine": [FIRST]})
    assert node.turn() == []


def test_neighbours_share_no_core_and_a_newcomer_moves_nobody(node: TestNode) -> None:
    node.add_pod("first", gpus={"engine": [FIRST]}, created="2026-01-01T00:00:01Z")
    node.turn()
    before = node.annotations("first")["cpuplan.dev/step-cpus"]
    node.add_pod("older", gpus={"engine": [FIRST]}, created="2026-01-01T00:00:00Z")
    patches = node.turn()
    assert node.annotations("first")["cpuplan.dev/step-cpus"] == before
    first, older = (node.plan(name).containers[0][1].pinned for name in ("first", "older"))
    assert not first & older
    assert {request.path.rsplit("/", 1)[1] for request in patches} == {"first", "older"}


def test_the_pools_of_a_pod_float_beside_all_pins_of_the_node(node: TestNode) -> None:
    node.add_pod("a", gpus={"engine": [FIRST]})
    node.add_pod("b", gpus={"engine": [SECOND]})
    node.turn()
    node.turn()
    a, b = (node.plan(name).containers[0][1] for name in ("a", "b"))
    assert not a.pool_cpus & (a.pinned | b.pinned)
    assert a.pool_cpus == b.pool_cpus


def test_a_restarted_agent_moves_and_writes_nothing(node: TestNode) -> None:
    node.add_pod("b", gpus={"engine": [FIRST]}, created="2026-01-02T00:00:00Z")
    node.turn()
    node.add_pod("a", gpus={"engine": [FIRST]}, created="2026-01-01T00:00:00Z")
    node.turn()
    node.turn()
    before = {name: node.annotations(name) for name in ("a", "b")}
    node.restart_agent()
    assert node.turn() == []
    assert {name: node.annotations(name) for name in ("a", "b")} == before


def test_pods_created_while_the_agent_was_down_get_their_plans(node: TestNode) -> None:
    node.add_pod("before", gpus={"engine": [FIRST]})
    node.turn()
    node.add_pod("meanwhile", gpus={"engine": [SECOND]})
    node.restart_agent()
    node.turn()
    assert [node.status(name) for name in ("before", "meanwhile")] == ["Pinned", "Pinned"]


@pytest.mark.parametrize("how", ["ended", "removed"])
def test_cores_are_free_as_soon_as_their_pod_is_gone(node: TestNode, how: str) -> None:
    node.add_pod("old", gpus={"engine": [FIRST]})
    node.turn()
    held = node.plan("old").containers[0][1].pinned
    {"ended": node.end_pod, "removed": node.remove_pod}[how]("old")
    node.add_pod("new", gpus={"engine": [FIRST]})
    node.turn()
    assert node.plan("new").containers[0][1].pinned == held


def test_a_container_that_ended_for_good_frees_its_cores_while_its_pod_goes_on(node: TestNode) -> None:
    node.add_pod("job", gpus={"engine": [FIRST]}, created="2026-01-01T00:00:00Z")
    node.patch("job", {"spec": {"restartPolicy": "Never"}})
    node.run_container("job", "engine", cpuset="0-223")
    node.turn()
    held = node.plan("job").containers[0][1].pinned
    ended = {"name": "engine", "containerID": "containerd://x", "state": {"terminated": {"exitCode": 0}}}
    node.patch("job", {"status": {"containerStatuses": [ended]}})
    node.add_pod("new", gpus={"engine": [FIRST]}, created="2026-01-02T00:00:00Z")
    node.turn()
    assert node.plan("new").containers[0][1].pinned == held
    assert (node.status("job"), node.annotations("job")["cpuplan.dev/why"]) == (
        "NotPinned",
        "nothing is pinned: the container has ended",
    )
    assert node.turn() == []


def test_an_ended_pod_is_not_written_to(node: TestNode) -> None:
    node.add_pod("old", gpus={"engine": [FIRST]})
    node.end_pod("old", "Failed")
    assert node.turn() == []


def test_a_pod_that_is_being_deleted_keeps_its_cores_until_it_is_gone(node: TestNode) -> None:
    node.add_pod("leaving", gpus={"engine": [FIRST]})
    node.turn()
    node.patch("leaving", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    node.add_pod("next", gpus={"engine": [FIRST]})
    node.turn()
    pinned = [node.plan(name).containers[0][1].pinned for name in ("leaving", "next")]
    assert not pinned[0] & pinned[1]
    assert node.plan("leaving").generation == 1


def test_removing_the_annotation_removes_every_trace(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]}, annotations={"cpuplan.dev/workers": "0", "foreign": "x"})
    node.turn()
    node.annotate("llm-0", step_thread_core=None)
    assert len(node.turn()) == 1
    assert node.annotations("llm-0") == {"cpuplan.dev/workers": "0", "foreign": "x"}
    assert node.labels("llm-0") == {}
    assert node.turn() == []


@pytest.mark.parametrize(
    ("setting", "status", "why"),
    [
        ("off", "Off", "step_thread_core off"),
        ("banana", "Error", "step_thread_core is 'banana': expected off, auto or a CPU number such as 4"),
        ("", "Error", "step_thread_core is '': expected off, auto or a CPU number such as 4"),
        ("999", "Error", "step_thread_core 999: CPU 999 is outside the mask"),
        ("-1", "Error", "step_thread_core -1: CPU -1 is outside the mask"),
        ("4", "Pinned", "step threads on 4,116"),
    ],
)
def test_every_setting_has_its_status_and_sentence(node: TestNode, setting: str, status: str, why: str) -> None:
    node.add_pod("llm-0", setting=setting, gpus={"engine": [FIRST]})
    node.turn()
    assert node.status("llm-0") == status
    assert why in node.annotations("llm-0")["cpuplan.dev/why"]


def test_a_corrected_setting_is_planned_anew_with_a_new_generation(node: TestNode) -> None:
    node.add_pod("llm-0", setting="banana", gpus={"engine": [FIRST]})
    node.turn()
    node.annotate("llm-0", step_thread_core="auto")
    node.turn()
    assert (node.status("llm-0"), node.plan("llm-0").generation) == ("Pinned", 2)


@pytest.mark.parametrize(
    ("annotations", "why"),
    [
        ({"cpuplan.dev/workers": "0,2"}, "device 2 does not exist, the container has 1 (0 is the first)"),
        ({"cpuplan.dev/workers": "gpu0"}, "'gpu0' is neither a device index nor - (no device)"),
        ({"cpuplan.dev/workers": ""}, "'' is neither a device index nor - (no device)"),
        ({"cpuplan.dev/container": "sidecar"}, "the pod has no such container: expected one of engine"),
    ],
)
def test_a_wrong_users_annotation_is_an_error_that_says_what_is_allowed(
    node: TestNode, annotations: dict[str, str], why: str
) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]}, annotations=annotations)
    node.turn()
    assert node.status("llm-0") == "Error"
    assert why in node.annotations("llm-0")["cpuplan.dev/why"]


def test_workers_may_share_a_device_or_have_none(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [SECOND, FIRST]}, annotations={"cpuplan.dev/workers": "1,1,0,-"})
    node.turn()
    workers = node.plan("llm-0").containers[0][1].workers
    assert [worker.address for worker in workers] == [SECOND, SECOND, FIRST, None]
    assert len(frozenset.union(*(worker.cpus for worker in workers))) == 8


def test_removal_while_the_agent_was_down_is_made_up_for(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.turn()
    node.annotate("llm-0", step_thread_core=None)
    node.restart_agent()
    assert len(node.turn()) == 1
    assert (node.annotations("llm-0"), node.labels("llm-0")) == ({}, {})


def test_exclusive_cpus_of_one_container_leave_the_other_the_shared_pool(node: TestNode) -> None:
    node.add_pod("pair", gpus={"prefill": [FIRST], "decode": [SECOND]}, cpu_limit="8")
    node.kubelet.set_cpu_ids("default", "pair", "prefill", [2, 3, 4, 5, 114, 115, 116, 117])
    node.turn()
    prefill, decode = (container for _, container in node.plan("pair").containers)
    assert (format_cpu_list(prefill.mask), prefill.quota) == ("2-5,114-117", None)
    assert (format_cpu_list(decode.mask), decode.quota) == ("0-223", 8)
    assert not prefill.pinned & decode.pinned


def test_the_workers_annotation_holds_for_each_planned_container(node: TestNode) -> None:
    node.add_pod(
        "pair", gpus={"prefill": [FIRST, SECOND], "decode": [ON_THE_OTHER_SOCKET]}, annotations={WORKERS: "0,1"}
    )
    node.turn()
    (_, prefill), (_, decode) = node.plan("pair").containers
    assert (prefill.reason, decode.reason) == ("pinned", "invalid-setting")
    assert "device 1 does not exist, the container has 1" in decode.why
    assert node.status("pair") == "Error"


def test_several_gpu_containers_of_a_pod_are_planned_side_by_side(node: TestNode) -> None:
    node.add_pod("pair", gpus={"prefill": [FIRST], "log": [], "decode": [SECOND]})
    node.turn()
    plan = node.plan("pair")
    assert [name for name, _ in plan.containers] == ["prefill", "decode"]
    assert not plan.containers[0][1].pinned & plan.containers[1][1].pinned
    assert node.annotations("pair")["cpuplan.dev/step-cpus"].count("=") == 2


def test_only_the_named_container_is_planned(node: TestNode) -> None:
    node.add_pod("pair", gpus={"prefill": [FIRST], "decode": [SECOND]}, annotations={"cpuplan.dev/container": "decode"})
    node.turn()
    assert [name for name, _ in node.plan("pair").containers] == ["decode"]


def test_a_pod_without_devices_is_told_so(node: TestNode) -> None:
    node.add_pod("cpu-only")
    node.turn()
    engine = node.plan("cpu-only").containers[0][1]
    assert engine.reason == "no-device"
    assert engine.why == (
        "the container has no GPU to place workers beside; ask for one, name the container that has it with "
        'cpuplan.dev/container, or name workers without a GPU with cpuplan.dev/workers ("-" is one, "-,-" are two)'
    )
    assert node.status("cpu-only") == "NotPinned"


def test_a_pod_whose_devices_are_not_shown_yet_is_planned_when_they_are(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST, SECOND]})
    shown = node.kubelet._pods["default", "llm-0"].containers["engine"].devices
    second = shown.pop()
    assert node.turn() == []
    node.clock.advance(1)
    shown.append(second)
    node.turn()
    assert (node.status("llm-0"), node.plan("llm-0").generation) == ("Pinned", 1)


def test_a_long_wait_for_devices_is_said_with_both_numbers(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST, SECOND]})
    node.kubelet._pods["default", "llm-0"].containers["engine"].devices.pop()
    node.turn()
    node.clock.advance(5)
    node.turn()
    assert node.plan("llm-0").containers[0][1].reason == "waiting-for-devices"
    assert "the kubelet shows 1 of 2 nvidia.com/gpu" in node.annotations("llm-0")["cpuplan.dev/why"]


def test_the_devices_of_an_ended_namesake_are_not_taken_for_ones_own(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST, SECOND]})
    node.turn()
    node.kubelet.end_pod("default", "llm-0")
    node.api.remove("/api/v1/namespaces/default/pods/llm-0")
    node.add_pod("llm-0", gpus={"engine": [ON_THE_OTHER_SOCKET]})
    node.turn()
    assert [worker.address for worker in node.plan("llm-0").containers[0][1].workers] == [ON_THE_OTHER_SOCKET]


def test_an_unreachable_kubelet_changes_no_plan_and_is_not_ready(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.turn()
    assert node.assembled.agent.trouble_ready() == ""
    node.kubelet.stop()
    assert node.turn() == []
    assert "PodResources socket" in node.assembled.agent.trouble_ready()
    assert node.metric("podresources_errors_total") == 1
    node.kubelet.start()
    assert node.turn() == []
    assert node.assembled.agent.trouble_ready() == ""


def test_a_busy_kubelet_changes_no_plan(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.turn()
    node.kubelet.fail(grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert node.turn() == []


def test_a_device_that_cannot_be_placed_is_a_reason(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.kubelet.set_devices("default", "llm-0", "engine", {"nvidia.com/gpu": ["weird-0"]})
    node.turn()
    assert node.plan("llm-0").containers[0][1].reason == "device-unknown"
    assert "'weird-0' has none of the known forms" in node.annotations("llm-0")["cpuplan.dev/why"]


def test_a_cpu_number_needs_no_address(node: TestNode) -> None:
    node.add_pod("llm-0", setting="4", gpus={"engine": [FIRST]})
    node.kubelet.set_devices("default", "llm-0", "engine", {"nvidia.com/gpu": ["weird-0"]})
    node.turn()
    assert node.annotations("llm-0")["cpuplan.dev/step-cpus"] == "engine=4,116"


def test_exclusive_cpus_are_the_mask_and_no_quota_counts(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]}, cpu_limit="8")
    node.kubelet.set_cpu_ids("default", "llm-0", "engine", [2, 3, 4, 5, 114, 115, 116, 117])
    node.turn()
    plan = node.plan("llm-0").containers[0][1]
    assert (format_cpu_list(plan.mask), plan.quota) == ("2-5,114-117", None)


def test_a_running_container_has_its_cgroups_cpus_and_the_tightest_quota(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]}, cpu_limit="8")
    node.run_container("llm-0", "engine", cpuset="0-31,112-143", quota="650000 100000")
    (node.root.cgroup / "kubepods" / "cpu.max").write_text("600000 100000\n")
    node.turn()
    plan = node.plan("llm-0").containers[0][1]
    assert (format_cpu_list(plan.mask), plan.quota, plan.usable) == ("0-31,112-143", 6.0, 6)


def test_a_resized_quota_is_published_and_moves_no_pin(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.run_container("llm-0", "engine", cpuset="0-223", quota="1600000 100000")
    node.turn()
    before = node.plan("llm-0").containers[0][1]
    node.run_container("llm-0", "engine", cpuset="0-223", quota="800000 100000")
    node.turn()
    after = node.plan("llm-0").containers[0][1]
    assert (before.usable, after.usable, after.pinned) == (16, 8, before.pinned)
    assert node.plan("llm-0").generation == 2


def test_a_mask_that_shrinks_beside_the_pins_counts_only_when_it_lasts(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.run_container("llm-0", "engine", cpuset="0-223")
    node.turn()
    node.run_container("llm-0", "engine", cpuset="0-199")
    assert node.turn() == []
    node.clock.advance(11)
    node.turn()
    assert format_cpu_list(node.plan("llm-0").containers[0][1].mask) == "0-199"


def test_a_mask_that_comes_back_in_time_is_never_written(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.run_container("llm-0", "engine", cpuset="0-223")
    node.turn()
    node.run_container("llm-0", "engine", cpuset="0-199")
    node.turn()
    node.clock.advance(9)
    node.run_container("llm-0", "engine", cpuset="0-223")
    node.turn()
    node.clock.advance(9)
    node.run_container("llm-0", "engine", cpuset="0-199")
    assert node.turn() == []


def test_a_mask_that_lost_a_pinned_cpu_counts_at_once(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.run_container("llm-0", "engine", cpuset="0-223")
    node.turn()
    node.run_container("llm-0", "engine", cpuset="8-55,120-167")
    node.turn()
    plan = node.plan("llm-0").containers[0][1]
    assert plan.pinned <= plan.mask == parse_cpu_list("8-55,120-167")


def test_a_restarting_container_keeps_its_mask_and_pins(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.run_container("llm-0", "engine", cpuset="16-31,128-143", quota="600000 100000")
    node.turn()
    before = node.plan("llm-0")
    waiting = {"name": "engine", "restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    node.patch("llm-0", {"status": {"containerStatuses": [waiting]}})
    node.clock.advance(60)
    assert node.turn() == []
    assert node.plan("llm-0") == before


def test_a_pod_level_limit_counts_before_the_container_runs(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]}, cpu_limit="8")
    node.patch("llm-0", {"spec": {"resources": {"limits": {"cpu": "5500m"}}}})
    node.turn()
    assert node.plan("llm-0").containers[0][1].quota == 5.5


def test_a_pod_level_allocation_is_the_mask_of_its_sharing_containers(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.kubelet.set_cpu_ids("default", "llm-0", "other", [0, 112])
    node.kubelet.set_pod_cpu_ids("default", "llm-0", [*range(8), *range(112, 120)])
    node.turn()
    assert format_cpu_list(node.plan("llm-0").containers[0][1].mask) == "1-7,113-119"


def test_reserved_cpus_are_in_no_mask(make_node: MakeNode) -> None:
    node = make_node("h100-server", reserved_cpus=parse_cpu_list("0-1,112-113"))
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.turn()
    assert format_cpu_list(node.plan("llm-0").containers[0][1].mask) == "2-111,114-223"


def test_an_administrators_bound_is_said(make_node: MakeNode) -> None:
    node = make_node("h100-server", most_pinned_per_pod=2)
    node.add_pod("llm-0", gpus={"engine": [FIRST, SECOND]})
    node.turn()
    assert node.plan("llm-0").containers[0][1].reason == "over-share"


def test_a_plan_of_another_boot_or_pod_is_no_memory(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.turn()
    plan = json.loads(node.annotations("llm-0")["cpuplan.dev/plan"])
    plan["containers"]["engine"]["workers"][0]["cpus"] = "30,142"
    node.annotate("llm-0", **{"cpuplan.dev/plan": json.dumps({**plan, "bootID": "before"})})
    node.turn()
    assert "engine=0,112" in node.annotations("llm-0")["cpuplan.dev/step-cpus"]
    assert node.plan("llm-0").generation == 2


@pytest.mark.parametrize("text", ["", "{", "{}", '{"version":99}', "null", "[" * 5000])
def test_a_plan_that_cannot_be_read_is_replaced(node: TestNode, text: str) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]}, annotations={"cpuplan.dev/plan": text})
    node.turn()
    assert node.status("llm-0") == "Pinned"


def test_the_verdict_of_the_init_container_becomes_an_annotation(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    message = 'fail wrap-lost: the wrap was lost\n{"verdict":"fail","fault":"wrap-lost","deviceUUIDs":["GPU-1"]}'
    node.patch(
        "llm-0",
        {
            "spec": {"initContainers": [{"name": "cpuplan"}]},
            "status": {"initContainerStatuses": [{"name": "cpuplan", "state": {"terminated": {"message": message}}}]},
        },
    )
    node.turn()
    verdict = json.loads(node.annotations("llm-0")["cpuplan.dev/hostflag"])
    assert (verdict["verdict"], verdict["fault"], verdict["deviceUUIDs"]) == ("fail", "wrap-lost", ["GPU-1"])
    assert verdict["podUID"] == node.plan("llm-0").pod_uid
    assert node.turn() == []


def test_a_refused_patch_is_counted_and_not_repeated_at_once(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.api.fail(403, method="PATCH", times=1)
    node.turn()
    assert node.turn() == []
    assert node.metric("patches_total", result="refused") == 1
    node.clock.advance(2)
    node.turn()
    assert node.status("llm-0") == "Pinned"


def test_a_refusal_for_one_pod_does_not_hold_up_the_others(node: TestNode) -> None:
    node.add_pod("a", gpus={"engine": [FIRST]})
    node.add_pod("b", gpus={"engine": [SECOND]})
    node.api.fail(422, method="PATCH", path_part="/pods/a", times=1)
    node.turn()
    assert "cpuplan.dev/plan" not in node.annotations("a")
    assert node.status("b") == "Pinned"


def test_after_a_silent_api_server_no_other_pod_waits_for_it_in_the_same_turn(node: TestNode) -> None:
    for name in ("a", "b", "c"):
        node.add_pod(name, gpus={"engine": [FIRST]})
    node.api.fail(503, method="PATCH", times=2)
    assert len(node.turn()) == 2
    assert node.metric("patches_total", result="failed") == 1
    node.clock.advance(2)
    assert len(node.turn()) == 3


def test_a_pod_that_vanishes_before_its_patch_is_no_trouble(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.watch._list()
    node.api.remove("/api/v1/namespaces/default/pods/llm-0")
    node.assembled.agent.replan()
    assert node.metric("patches_total", result="outdated") == 1


def test_a_patch_names_the_pod_it_is_meant_for(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    (patch,) = node.turn()
    assert patch.body["metadata"]["uid"] in as_patch(patch)
    assert set(patch.body["metadata"]) == {"uid", "annotations", "labels"}


def test_the_answer_to_a_patch_is_known_before_the_watch_shows_it(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.turn()
    node.assembled.agent.replan()
    assert len(node.api.requests_of("PATCH")) == 1


def test_plans_stay_below_four_kibibytes(node: TestNode) -> None:
    addresses = [gpu.name for gpu in sorted(Path(node.root.nvidia_folder).iterdir())]
    node.add_pod("llm-0", gpus={"engine": addresses})
    node.turn()
    ours = {key: text for key, text in node.annotations("llm-0").items() if key.startswith("cpuplan.dev/")}
    assert sum(len(key) + len(text.encode()) for key, text in ours.items()) < 4096
    assert len(node.plan("llm-0").containers[0][1].workers) == 8


def test_metrics_have_every_counter_before_anything_happened(node: TestNode) -> None:
    assert [node.metric("patches_total", result=result) for result in ("written", "refused", "outdated", "failed")] == [
        *(0, 0, 0, 0)
    ]
    assert (node.metric("podresources_errors_total"), node.metric("watch_errors_total")) == (0, 0)


def test_metrics_say_what_was_planned(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.add_pod("cpu-only")
    node.turn()
    assert node.metric("plans", reason="pinned") == 1
    assert node.metric("plans", reason="no-device") == 1
    assert node.metric("pinned_cpus") == 3
    assert node.metric("patches_total", result="written") == 2
    assert node.metric("replan_seconds_count") == 1
    node.remove_pod("llm-0")
    node.turn()
    assert node.metric("plans", reason="pinned") == 0


def test_a_two_cpu_machine_pins_nothing_and_says_so(make_node: MakeNode) -> None:
    node = make_node("small-vm")
    address = next(Path(node.root.nvidia_folder).iterdir()).name
    node.add_pod("llm-0", gpus={"engine": [address]})
    node.turn()
    assert node.status("llm-0") == "NotPinned"
    assert node.plan("llm-0").containers[0][1].reason in {"would-pin-all", "too-few-cores"}
