"""Masks and quotas as kubelets and runtimes change them under running pods."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cpuplan.agent.masks import NodeCpus
from cpuplan.host.root import HostRoot
from cpuplan.model.cpulist import format_cpu_list, parse_cpu_list
from cpuplan.model.podplan import ContainerPlan
from cpuplan.model.withheld import Withheld, WithheldFor
from tests.agent.node import MakeNode, TestNode

FIRST, SECOND = "0000:1b:00.0", "0000:43:00.0"


@pytest.fixture
def node(make_node: MakeNode) -> TestNode:
    """A two-socket server with 224 CPUs and eight GPUs."""
    return make_node("h100-server")


def plan_of(node: TestNode, name: str = "llm-0") -> ContainerPlan:
    """The plan of the pod's only container."""
    return node.plan(name).containers[0][1]


def scope_of(node: TestNode, name: str = "llm-0") -> Path:
    """The cgroup of the pod's running container."""
    (pod,) = [pod for pod in node.watch.pods() if pod.name == name]
    container_id = pod.containers[0].container_id
    assert container_id is not None
    return node.root.cgroup / "kubepods" / f"pod{pod.uid}" / container_id


def test_a_scope_that_is_not_set_up_yet_changes_no_plan(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]}, cpu_limit="16")
    node.turn()
    node.run_container("llm-0", "engine", cpuset="", quota="max 100000")
    assert node.turn() == []
    node.run_container("llm-0", "engine", cpuset="0-223", quota="1600000 100000")
    assert node.turn() == []
    assert (plan_of(node).quota, format_cpu_list(plan_of(node).mask)) == (16.0, "0-223")


def test_a_pods_own_limit_holds_for_a_container_without_one(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.run_container("llm-0", "engine", cpuset="0-223")
    node.turn()
    assert plan_of(node).quota is None
    (scope_of(node).parent / "cpu.max").write_text("1250000 100000\n")
    node.turn()
    assert (plan_of(node).quota, plan_of(node).usable) == (12.5, 12)


def test_an_in_place_resize_up_and_down_is_a_generation_each_and_moves_no_pin(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]}, cpu_limit="8")
    quotas = ["800000 100000", "3200000 100000", "800000 100000"]
    seen = []
    for quota in quotas:
        node.run_container("llm-0", "engine", cpuset="0-223", quota=quota)
        node.turn()
        seen.append((node.plan("llm-0").generation, plan_of(node).usable, plan_of(node).pinned))
    pinned = seen[0][2]
    assert seen == [(1, 8, pinned), (2, 32, pinned), (3, 8, pinned)]


def test_an_exclusive_neighbour_shrinks_the_pool_and_pins_outside_it_stay(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.run_container("llm-0", "engine", cpuset="0-223")
    node.turn()
    before = plan_of(node)
    node.add_pod("exclusive", setting=None)
    node.kubelet.set_cpu_ids("default", "exclusive", "engine", [60, 61, 172, 173])
    (scope_of(node) / "cpuset.cpus.effective").write_text("0-59,62-171,174-223\n")
    assert node.turn() == []
    node.clock.advance(11)
    node.turn()
    assert (plan_of(node).pinned, node.plan("llm-0").generation) == (before.pinned, 2)
    assert format_cpu_list(plan_of(node).mask) == "0-59,62-171,174-223"


def test_a_pool_without_pins_is_followed_at_once(node: TestNode) -> None:
    node.add_pod("llm-0", setting="off", gpus={"engine": [FIRST]})
    node.run_container("llm-0", "engine", cpuset="0-223")
    node.turn()
    node.run_container("llm-0", "engine", cpuset="0-59,62-223")
    node.turn()
    assert format_cpu_list(plan_of(node).mask) == "0-59,62-223"


def test_exclusive_cpus_count_although_the_pod_above_them_has_a_limit(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]}, cpu_limit="4")
    node.kubelet.set_cpu_ids("default", "llm-0", "engine", [4, 5, 116, 117])
    node.run_container("llm-0", "engine", cpuset="4-5,116-117", quota="max 100000")
    node.turn()
    (scope_of(node).parent / "cpu.max").write_text("400000 100000\n")
    assert node.turn() == []
    assert (format_cpu_list(plan_of(node).mask), plan_of(node).quota) == ("4-5,116-117", None)


def test_reserved_cpus_leave_the_mask_that_a_running_container_has(make_node: MakeNode) -> None:
    node = make_node("h100-server", reserved_cpus=frozenset({0, 1, 112, 113}))
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.run_container("llm-0", "engine", cpuset="0-223")
    node.turn()
    assert format_cpu_list(plan_of(node).mask) == "2-111,114-223"
    assert plan_of(node).withheld == (Withheld(WithheldFor.RESERVED, parse_cpu_list("0-1,112-113")),)


@pytest.mark.parametrize("setting", ["auto", "0"])
@pytest.mark.parametrize("cpus", ["0-1,112-113", "0,112"])
def test_reserved_cpus_are_pinned_by_nobody_also_where_they_are_all_there_is(
    make_node: MakeNode, setting: str, cpus: str
) -> None:
    """What is left of the shared pool where exclusive pods took the rest."""
    node = make_node("h100-server", reserved_cpus=parse_cpu_list("0-1,112-113"))
    node.add_pod("llm-0", gpus={"engine": [FIRST]}, setting=setting)
    node.run_container("llm-0", "engine", cpuset=cpus)
    node.turn()
    plan = plan_of(node)
    assert (plan.pinned, format_cpu_list(plan.mask), format_cpu_list(plan.pool_cpus)) == (frozenset(), cpus, cpus)
    assert plan.reason == ("nothing-to-place" if setting == "auto" else "outside-mask")
    lead = "nothing is pinned" if setting == "auto" else "step_thread_core 0"
    assert plan.why == (
        f"{lead}: no plan may use any CPU of the container: {cpus} (reserved); give it other CPUs (exclusive ones, "
        "say), or take CPUs out of agent.reservedCpus"
    )
    assert node.turn() == []


def test_a_pod_on_reserved_cpus_is_planned_once_they_are_reserved_no_more(make_node: MakeNode) -> None:
    node = make_node("h100-server", reserved_cpus=parse_cpu_list("0-3,112-115"))
    node.add_pod("llm-0", gpus={"engine": [FIRST]}, annotations={"cpuplan.dev/workers": "-"})
    node.run_container("llm-0", "engine", cpuset="0-3,112-115")
    node.turn()
    assert node.status("llm-0") == "NotPinned"
    node.restart_agent()
    node.turn()
    assert (node.status("llm-0"), plan_of(node).withheld) == ("Pinned", ())


def test_a_pod_is_moved_off_cpus_that_the_administrator_reserves_later(make_node: MakeNode) -> None:
    node = make_node("h100-server")
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.run_container("llm-0", "engine", cpuset="0-223")
    node.turn()
    assert format_cpu_list(plan_of(node).pinned) == "0,55,112"
    node.restart_agent(reserved_cpus=parse_cpu_list("0-1,112-113"))
    node.turn()
    assert plan_of(node).pinned.isdisjoint(parse_cpu_list("0-1,112-113"))


@pytest.mark.parametrize(
    ("isolated", "reserved", "cpus", "mask", "withheld"),
    [
        ("4-5", "0-1", "0-7", "2-3,6-7", "4-5 (isolated), 0-1 (reserved)"),
        ("4-5", "4-5", "0-7", "0-3,6-7", "4-5 (reserved)"),
        ("4-5", "", "4-5", "4-5", ""),
        ("4-5", "4", "4-5", "5", "4 (reserved)"),
        ("4-5", "0-1", "0-1,4", "0-1,4", "4 (isolated), 0-1 (reserved)"),
        ("", "", "6-9", "6-7", "8-9 (offline)"),
    ],
)
def test_cpus_are_withheld_for_one_reason_each(
    isolated: str, reserved: str, cpus: str, mask: str, withheld: str
) -> None:
    node = NodeCpus(
        online=parse_cpu_list("0-7"),
        shared_pool=parse_cpu_list("0-7"),
        isolated=parse_cpu_list(isolated),
        reserved=parse_cpu_list(reserved),
    )
    granted = parse_cpu_list(cpus)
    assert format_cpu_list(node.mask_in(granted)) == mask
    assert ", ".join(map(str, node.withheld_in(granted))) == withheld


def test_a_number_that_is_withheld_is_refused_with_why(make_node: MakeNode) -> None:
    node = make_node("h100-server", reserved_cpus=parse_cpu_list("0-1"))
    node.add_pod("llm-0", gpus={"engine": [FIRST]}, setting="1")
    node.turn()
    assert plan_of(node).why.endswith("choose a CPU of the mask, or auto (CPU 1 is withheld from plans: reserved)")


def test_between_two_runs_a_container_keeps_what_was_withheld_from_it(make_node: MakeNode) -> None:
    node = make_node("h100-server", reserved_cpus=parse_cpu_list("0-1"))
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.run_container("llm-0", "engine", cpuset="0-99")
    node.turn()
    node.patch("llm-0", {"status": {"containerStatuses": [{"name": "engine", "restartCount": 1, "state": {}}]}})
    assert node.turn() == []
    assert str(plan_of(node).withheld[0]) == "0-1 (reserved)"


def test_cpus_that_come_online_join_the_mask_when_they_have_stayed(node: TestNode, tmp_path: Path) -> None:
    shutil.copytree(node.root.sys, tmp_path / "sys", symlinks=True)
    node.root = HostRoot(tmp_path / "sys", node.root.proc, node.root.cgroup)
    online = node.root.cpu_folder / "online"
    online.write_text("0-99,112-211\n")
    node.restart_agent()
    node.add_pod("llm-0", gpus={"engine": [SECOND]})
    node.run_container("llm-0", "engine", cpuset="0-223")
    node.turn()
    assert format_cpu_list(plan_of(node).mask) == "0-99,112-211"
    online.write_text("0-223\n")
    assert node.turn() == []
    node.clock.advance(11)
    node.turn()
    assert (format_cpu_list(plan_of(node).mask), node.plan("llm-0").generation) == ("0-223", 2)


@pytest.mark.parametrize("folder", ["cpu", "cpu,cpuacct"])
def test_a_node_with_cgroup_v1_is_read_from_its_two_hierarchies(node: TestNode, folder: str) -> None:
    (node.root.cgroup / "cgroup.controllers").unlink()
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.run_container("llm-0", "engine", cpuset="0-223")
    node.turn()
    path = scope_of(node).relative_to(node.root.cgroup)
    files = {
        f"{folder}/{path}/cpu.cfs_quota_us": "600000",
        f"{folder}/{path}/cpu.cfs_period_us": "100000",
        f"cpuset/{path}/cpuset.cpus": "0-55,112-167",
    }
    for name, text in files.items():
        (node.root.cgroup / name).parent.mkdir(parents=True, exist_ok=True)
        (node.root.cgroup / name).write_text(f"{text}\n")
    node.restart_agent()
    node.turn()
    node.clock.advance(11)
    node.turn()
    assert (format_cpu_list(plan_of(node).mask), plan_of(node).quota) == ("0-55,112-167", 6.0)
