"""What the agent says about a pod's plan: every CPU of its node with a reason, and why there is no plan."""

from __future__ import annotations

import json
import threading
from argparse import ArgumentParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from cpuplan.agent import explaining
from cpuplan.agent.process import documents_of
from cpuplan.agent.settings import add_arguments, settings_from
from cpuplan.kube.paths import pod_path
from cpuplan.model.cpulist import format_cpu_list
from cpuplan.planning.agentanswer import ContainerExplained, PodExplained
from cpuplan.planning.explanation import Topic
from cpuplan.planning.searches import Fate
from cpuplan.process.endpoints import BusyError, QueryError
from tests.agent.node import MakeNode, TestNode
from tests.agent.test_process import LIMIT_SECONDS, running_agent
from tests.machines import gpu_uuid
from tests.waiting import until

FIRST, SECOND, ON_NODE_1 = "0000:1b:00.0", "0000:43:00.0", "0000:9d:00.0"


@pytest.fixture
def node(make_node: MakeNode) -> TestNode:
    """An eight-GPU server with two sockets."""
    return make_node("h100-server")


def explained(node: TestNode, name: str = "llm-0") -> PodExplained:
    """What the agent answers about a pod, by the way of its JSON."""
    text = documents_of(node.settings, node.assembled)["/explain"]({"namespace": "default", "pod": name})
    return PodExplained.from_document(json.loads(text))


def engine(node: TestNode, name: str = "llm-0") -> ContainerExplained:
    """What it answers about the container `engine`."""
    found = explained(node, name).container("engine")
    assert found is not None
    return found


def inputs(node: TestNode, name: str = "llm-0") -> dict[str, list[str]]:
    """The sentences about what the plan was made from, with their sources."""
    return {s.text: list(map(str, s.sources)) for s in engine(node, name).sentences if s.topic is Topic.INPUT}


def fates(node: TestNode, name: str = "llm-0") -> dict[tuple[str, str], str]:
    """The CPUs by fate and what is said of them, of worker 0."""
    return {(str(c.fate), c.text): format_cpu_list(c.cpus) for c in engine(node, name).candidates if 0 in c.workers}


def cgroup_of(node: TestNode, name: str = "llm-0") -> str:
    """The name that the kernel gives the cgroup of the pod's running container."""
    (pod,) = [pod for pod in node.watch.pods() if pod.name == name]
    return f"/sys/fs/cgroup/kubepods/pod{pod.uid}/{pod.containers[0].container_id}"


def test_a_running_containers_mask_and_quota_are_told_with_its_cgroups_files(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [SECOND]})
    node.run_container("llm-0", "engine", cpuset="0-111", quota="400000 100000")
    node.turn()
    folder, uuid = cgroup_of(node), gpu_uuid("h100-server", SECOND)
    assert inputs(node) == {
        "step_thread_core is auto; the mask has 112 CPUs (0-111), with a quota of 4 CPUs 4 can run at once": [],
        f"device {uuid} is at {SECOND}": [f"/proc/driver/nvidia/gpus/{SECOND}/information: {uuid}"],
        "its mask is the cpuset of its running cgroup": [f"{folder}/cpuset.cpus.effective: 0-111"],
        "its quota is 4 CPUs, the tightest limit from its cgroup up": [f"{folder}/cpu.max: 400000 100000"],
    }
    said = ("outside-mask", "they are not in the mask: its mask is the cpuset of its running cgroup")
    assert fates(node)[said] == "112-223"


def test_before_it_runs_the_shared_pool_and_the_specification_are_told(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]}, cpu_limit="3")
    node.turn()
    told = inputs(node)
    assert told[
        "its mask is the node's shared pool, in which the agent itself runs: it does not run yet, and has no exclusive "
        "CPUs"
    ] == ["Cpus_allowed_list of the agent in /proc/self/status: 0-223"]
    assert told["its quota is 3 CPUs: it does not run yet, and its specification says so"] == [
        "limits.cpu of container engine: 3"
    ]


def test_a_container_without_any_limit_is_told_so(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.turn()
    assert "it has no quota: it does not run yet, and its specification sets no limits.cpu" in inputs(node)
    node.run_container("llm-0", "engine", cpuset="0-223")
    node.turn()
    assert inputs(node)["no cgroup from its own up limits its CPUs"] == [f"{cgroup_of(node)}/cpu.max: max 100000"]


def test_a_running_container_whose_cgroup_is_not_found_is_told_so(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    state = {"name": "engine", "containerID": "containerd://gone", "state": {"running": {}}}
    node.patch("llm-0", {"status": {"containerStatuses": [state]}})
    node.turn()
    assert any("its cgroup was not found below /sys/fs/cgroup" in text for text in inputs(node))


def test_exclusive_cpus_are_told_from_the_kubelet(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.kubelet.set_cpu_ids("default", "llm-0", "engine", [0, 1, 2, 3, 4, 5, 6, 7, 8, 112])
    node.turn()
    told = inputs(node)
    assert told["its mask is its exclusive CPUs"] == [
        "cpu_ids in the kubelet's PodResources of default/llm-0 container engine: 0-8,112"
    ]
    assert told["no quota counts: its CPUs are exclusive"] == []


def test_reserved_cpus_are_told_by_their_flag(make_node: MakeNode) -> None:
    node = make_node(reserved_cpus=frozenset({0, 1}))
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.turn()
    text = "of these CPUs 0-1 are offline, isolated or reserved, and left out"
    assert inputs(node)[text] == ["--reserved-cpus (agent.reservedCpus): 0-1"]
    assert fates(node)["reserved", "the administrator keeps them from plans"] == "0-1"


def test_a_mask_that_has_to_settle_first_is_told(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.run_container("llm-0", "engine", cpuset="0-111")
    node.turn()
    node.run_container("llm-0", "engine", cpuset="0-63")
    node.turn()
    assert any(text.startswith("its mask would be 0-63 now; the plan stays") for text in inputs(node))


def test_neighbours_of_any_namespace_and_the_pods_other_containers_are_named(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST], "second": [FIRST]}, created="2026-02-01T00:00:00Z")
    node.add_pod("early", gpus={"engine": [FIRST]})
    node.api.put(
        pod_path("other", "llm-0"),
        {
            "metadata": {
                "annotations": {"step_thread_core": "12", "cpuplan.dev/workers": "-"},
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"nodeName": "n1", "containers": [{"name": "engine"}]},
            "status": {"phase": "Pending"},
        },
    )
    node.kubelet.set_devices("other", "llm-0", "engine", {})
    node.turn()
    held = {text for (fate, text) in fates(node) if fate == "held"}
    assert held == {
        "pinned for default/early container engine",
        "pinned for default/llm-0 container second",
        "pinned for other/llm-0 container engine",
    }
    assert [c.name for c in explained(node).containers] == ["engine", "second"]


def test_two_pods_of_one_name_are_told_apart_by_namespace(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.api.put(
        pod_path("other", "llm-0"),
        {"metadata": {}, "spec": {"nodeName": "n1", "containers": []}, "status": {"phase": "Running"}},
    )
    node.turn()
    other = node.assembled.explainer.explain_pod("other", "llm-0")
    assert other is not None
    assert other.notes == ("the pod asks for no plan: it has no annotation step_thread_core",)
    assert explained(node).uid not in ("", other.uid)


def test_where_an_override_differs_from_sysfs_is_told_and_its_file_named(node: TestNode, tmp_path: Path) -> None:
    override = tmp_path / "nccl.xml"
    override.write_text(
        f'<system><cpu numaid="1" affinity="ff000000,00000000,00000000"><pci busid="{FIRST}" class="0x030200"/></cpu>'
        "</system>"
    )
    node.restart_agent(topology_override=override)
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.turn()
    sentences = {s.text: list(map(str, s.sources)) for s in engine(node).sentences}
    assert sentences[
        f"the topology override differs from sysfs: {FIRST}: sysfs says NUMA node 0 with CPUs 0-55,112-167, the "
        "override says NUMA node 1 with CPUs 88-95"
    ] == [
        f"/sys/bus/pci/devices/{FIRST}/numa_node: 0",
        f"/sys/bus/pci/devices/{FIRST}/local_cpulist: 0-55,112-167",
    ]
    pool = next(s for s in engine(node).sentences if s.topic is Topic.POOL)
    assert list(map(str, pool.sources)) == [f"{override}: 1", f"{override}: 88-95"]


def test_a_plan_that_was_just_decided_and_one_that_stands_have_its_generation(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.turn()
    assert (explained(node).generation, explained(node).notes) == (
        1,
        ("the plan was decided in the agent's last turn: the pod shows it in a moment",),
    )
    node.turn()
    node.clock.advance(2.5)
    found = explained(node)
    assert (found.generation, found.notes, found.seconds_old, found.node) == (1, (), 2.5, "n1")
    assert found.uid == node.plan("llm-0").pod_uid
    node.annotate("llm-0", step_thread_core="off")
    node.turn()
    assert (explained(node).generation, engine(node).candidates) == (2, ())


def test_a_plan_that_the_api_server_refuses_is_explained_with_the_refusal(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.api.fail(403, times=9, method="PATCH")
    node.turn()
    found = explained(node)
    assert found.generation == 1
    assert found.notes[0].startswith("the plan could not be written on the pod, it is tried again: PATCH /api/v1/")
    assert "403" in found.notes[0]


def test_a_pod_that_waits_for_devices_is_told_what_for(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.kubelet.set_devices("default", "llm-0", "engine", {})
    node.turn()
    assert explained(node).notes == (
        "the plan is written once the devices are there, or after three seconds without them",
    )
    found = engine(node)
    assert found.plan.reason == "waiting-for-devices"
    assert found.sentences[-1].text == (
        "waiting-for-devices: the kubelet shows 0 of 1 nvidia.com/gpu for the container so far"
    )


def test_while_the_kubelet_does_not_answer_that_is_told(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.kubelet.stop()
    node.turn()
    assert explained(node).notes[0].startswith("the agent is not ready: ")
    assert (
        explained(node).notes[1] == "the kubelet does not answer, so no devices can be seen; plans that stand are kept"
    )


@pytest.mark.parametrize(
    ("setting", "reason"), [("banana", "invalid-setting"), ("300", "outside-mask"), ("auto", "no-device")]
)
def test_a_refused_pod_is_told_why_and_what_is_free(node: TestNode, setting: str, reason: str) -> None:
    node.add_pod("llm-0", setting=setting)
    node.turn()
    assert engine(node).plan.reason == reason
    assert [(c.whose, str(c.fate), format_cpu_list(c.cpus)) for c in engine(node).candidates] == [
        ("anybody", "free", "0-223")
    ]


def test_a_pod_that_takes_no_part_is_told_why(node: TestNode) -> None:
    node.add_pod("web", setting=None)
    node.add_pod("done", gpus={"engine": [FIRST]})
    node.end_pod("done")
    node.add_pod("leaves", gpus={"engine": [FIRST]})
    node.patch("leaves", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    node.turn()
    assert {name: explained(node, name).notes for name in ("web", "done", "leaves", "nobody")} == {
        "web": ("the pod asks for no plan: it has no annotation step_thread_core",),
        "done": ("the pod has ended (Succeeded): it holds no CPUs, and gets no plan any more",),
        "leaves": ("the pod is being deleted, and was never planned",),
        "nobody": ("the agent of node n1 knows no pod default/nobody on its node",),
    }
    assert explained(node, "nobody").uid == ""


def test_a_pod_that_leaves_is_told_to_keep_what_it_holds(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.turn()
    node.patch("llm-0", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    node.turn()
    found = explained(node)
    assert (found.generation, found.notes) == (
        1,
        ("the pod is being deleted: it keeps its CPUs until it is gone, and gets no new plan",),
    )
    assert [format_cpu_list(c.cpus) for c in engine(node).candidates if c.fate is Fate.TAKEN] == ["0,112", "55"]


def test_a_pod_that_cannot_be_understood_is_told_the_error(node: TestNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    facts = node.assembled.auditor._facts
    monkeypatch.setattr(facts, "place", lambda device_id: 1 / 0)
    node.turn()
    assert explained(node).notes == (
        "the pod cannot be understood, so it keeps what it holds and is not planned anew: ZeroDivisionError: division "
        "by zero",
    )


def test_a_restarted_agent_says_nothing_before_its_first_turn_and_then_the_same(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.turn()
    node.turn()
    before = explained(node)
    node.restart_agent()
    assert node.assembled.explainer.document({"namespace": "default", "pod": "llm-0"}) == ""
    node.turn()
    assert explained(node) == before


@pytest.mark.parametrize("query", [{}, {"pod": "llm-0"}, {"namespace": "default"}, {"namespace": "", "pod": "x"}])
def test_a_question_without_a_pod_is_told_how_to_ask(node: TestNode, query: dict[str, str]) -> None:
    node.turn()
    with pytest.raises(QueryError, match=r"name a pod: /explain\?namespace=NAMESPACE&pod=NAME"):
        node.assembled.explainer.document(query)


def test_asking_reads_nothing_and_writes_nothing(node: TestNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.run_container("llm-0", "engine", cpuset="0-111")
    node.turn()
    requests = len(node.api.requests)

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a file was opened")

    monkeypatch.setattr("os.open", refuse)
    monkeypatch.setattr("builtins.open", refuse)
    assert engine(node).plan.reason == "pinned"
    assert len(node.api.requests) == requests


def test_a_full_node_is_explained_within_bounds(node: TestNode) -> None:
    """110 pods that pin a core each and one with 64 workers: one answer stays far below what a reader takes."""
    for number in range(109):
        node.add_pod(f"pod-{number}", setting="0", created=f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z")
        node.annotate(f"pod-{number}", step_thread_core=str(number), **{"cpuplan.dev/workers": "-"})
    wide = {"cpuplan.dev/workers": ",".join(["0"] * 64)}
    node.add_pod("llm-0", gpus={"engine": [FIRST]}, created="2026-02-01T00:00:00Z", annotations=wide)
    node.turn()
    text = node.assembled.explainer.document({"namespace": "default", "pod": "llm-0"})
    assert len(text) < 256 << 10


def test_who_waits_too_long_for_others_is_sent_away(node: TestNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.turn()
    begun, over = threading.Event(), threading.Event()
    make = explaining.candidates_of

    def slowly(*args: Any, **more: Any) -> Any:
        begun.set()
        over.wait(30)
        return make(*args, **more)

    monkeypatch.setattr(explaining, "candidates_of", slowly)
    monkeypatch.setattr(explaining, "MOST_WAIT_SECONDS", 0.01)
    first = threading.Thread(target=explained, args=(node,), daemon=True)
    first.start()
    assert begun.wait(30)
    with pytest.raises(BusyError, match="busy with other questions"):
        explained(node)
    over.set()
    first.join(30)
    assert explained(node).generation == 1


def test_the_process_answers_for_one_pod_beside_the_metrics(node: TestNode, tmp_path: Path) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    with running_agent(node, tmp_path) as agent:
        page = "/explain?namespace=default&pod="
        until(lambda: agent.get(f"{page}llm-0")[0] == 200, limit_seconds=LIMIT_SECONDS)
        assert json.loads(agent.get(f"{page}llm-0")[1])["generation"] == 1
        odd = "../../é&pod\n\x00"
        assert odd in json.loads(agent.get(f"{page}{quote(odd)}")[1])["notes"][0]
        assert agent.get("/explain") == (400, "name a pod: /explain?namespace=NAMESPACE&pod=NAME\n")


@pytest.mark.parametrize(("words", "pages"), [([], ["/audit", "/explain"]), (["--explain", "off"], ["/audit"])])
def test_an_administrator_can_turn_the_page_off(node: TestNode, words: list[str], pages: list[str]) -> None:
    parser = ArgumentParser()
    add_arguments(parser, {})
    settings = settings_from(parser.parse_args(["--node-name", "n1", "--cgroup-root", "/proc", *words]))
    assert list(documents_of(settings, node.assembled)) == pages
