"""What `cpuplan explain POD` adds from the agent of the pod's node, and what it says where there is nothing to add."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cpuplan.cli import agents
from cpuplan.host.root import HostRoot
from cpuplan.host.sysfs import read_topology
from cpuplan.kube.annotations import SETTING, annotations_of
from cpuplan.kube.paths import pod_path
from cpuplan.model.podplan import PodPlan
from cpuplan.planning.agentanswer import ContainerExplained, PodExplained
from cpuplan.planning.candidates import candidates_of
from cpuplan.planning.explain import Decision, explain
from tests.cli.answers import Answer
from tests.fakeapi import FakeApi, Request
from tests.fakeapi.serving import Answer as ApiAnswer
from tests.podvolume import plan_of_pod

Command = Callable[..., Answer]
SERVER = "h100-server"
LABELS = {"app.kubernetes.io/name": "cpuplan", "app.kubernetes.io/component": "agent"}
AGENT = pod_path("cpuplan", "cpuplan-agent-x7")
READY = {"conditions": [{"type": "Ready", "status": "True"}]}


class OneAgent:
    """The agent of gpu-1: what it answers, and what it was asked."""

    def __init__(self, explained: PodExplained) -> None:
        self.explained = explained
        self.answer = ApiAnswer(200, b"")
        self.asked: list[dict[str, str]] = []

    def __call__(self, request: Request) -> ApiAnswer:
        self.asked.append(request.query)
        return self.answer if self.answer.body else ApiAnswer(200, json.dumps(self.explained.to_document()).encode())


@pytest.fixture
def plan(server: HostRoot) -> PodPlan:
    """The plan that stands on the pod, of generation 3."""
    return replace(plan_of_pod(SERVER, server, gpus=(0,), quota=24.0), generation=3)


@pytest.fixture
def explained(server: HostRoot, plan: PodPlan) -> PodExplained:
    """What its agent says of it."""
    topology = read_topology(server)
    containers = tuple(
        ContainerExplained(
            name,
            container,
            explain(Decision.of_container(container), topology),
            candidates_of(Decision.of_container(container), topology, neighbours={"team/other": frozenset({4, 116})}),
        )
        for name, container in plan.containers
    )
    return PodExplained("gpu-1", 1.5, plan.pod_uid, 3, (), containers)


def put_pod(api: FakeApi, plan: PodPlan | None, uid: str, **changes: Any) -> None:
    """The pod default/llm-0 on gpu-1."""
    annotations = {SETTING: "auto"} | ({} if plan is None else annotations_of(plan))
    metadata = {"namespace": "default", "name": "llm-0", "uid": uid, "annotations": annotations}
    pod = {"kind": "Pod", "metadata": metadata, "spec": {"nodeName": "gpu-1", "containers": []}, **changes}
    api.put(pod_path("default", "llm-0"), pod)


def put_agent(api: FakeApi, path: str = AGENT, status: dict[str, Any] | None = None) -> None:
    """An agent's pod on gpu-1."""
    ports = [{"name": "metrics", "containerPort": 9465}]
    spec = {"nodeName": "gpu-1", "containers": [{"name": "agent", "ports": ports}]}
    api.put(path, {"metadata": {"labels": LABELS}, "spec": spec, "status": READY if status is None else status})


@pytest.fixture
def agent(api: FakeApi, plan: PodPlan, explained: PodExplained) -> OneAgent:
    """A cluster with the pod and the agent of its node."""
    put_pod(api, plan, plan.pod_uid)
    put_agent(api)
    made = OneAgent(explained)
    api.serve_page(f"{AGENT}:9465", "explain", made)
    return made


@pytest.fixture
def explain_pod(cpuplan: Command, kubeconfig: Path) -> Command:
    """`cpuplan explain llm-0` with more words."""

    def call(*words: object) -> Answer:
        return cpuplan("explain", "llm-0", "--kubeconfig", kubeconfig, *words)

    return call


def test_the_agent_is_asked_about_this_pod_through_the_proxy(explain_pod: Command, agent: OneAgent) -> None:
    answer = explain_pod()

    assert agent.asked == [{"namespace": "default", "pod": "llm-0"}]
    assert answer.exit_code == 0
    assert answer.facts["agent"] == "that of gpu-1, generation 3, 1.5 s ago"
    assert "sources" not in answer.facts
    assert " from /sys/bus/pci/devices/0000:1b:00.0/local_cpulist: 0-55,112-167\n" in answer.output
    lines = [" ".join(line.split()) for line in answer.output.split("Every CPU of the node\n")[1].splitlines()]
    assert lines[0] == "FOR FATE CPUS AND WHY"
    assert "worker 0 taken 0,112: the search ended with them" in lines
    assert "worker 0, result threads held 4,116: pinned for team/other" in lines
    assert "worker 0, result threads remote 56-111,168-223: they are not in NUMA node 0, where the GPU is" in lines


def test_json_has_the_agents_reasons_with_the_plan_and_its_whole_answer(explain_pod: Command, agent: OneAgent) -> None:
    document = explain_pod("-o", "json").document

    (container,) = agent.explained.to_document()["containers"]
    assert document["agent"] == agent.explained.to_document()
    assert document["agentTrouble"] is None
    assert document["containers"]["engine"]["reasons"] == container["reasons"]
    assert document["containers"]["engine"]["candidates"] == container["candidates"]


def test_where_the_agent_answers_no_other_pod_is_read(explain_pod: Command, agent: OneAgent, api: FakeApi) -> None:
    explain_pod()

    assert [request.path for request in api.requests] == [
        "/api/v1/namespaces/default/pods/llm-0",
        "/api/v1/namespaces/cpuplan/pods",
        f"{AGENT}:9465/proxy/explain",
    ]


def status(code: int, reason: str, message: str) -> ApiAnswer:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return ApiAnswer(code, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        pytest.param(
            status(403, "Forbidden", 'pods "cpuplan-agent-x7:9465" is forbidden'),
            'the agent cpuplan-agent-x7 was not asked: pods "cpuplan-agent-x7:9465" is forbidden; it takes the rights '
            "to list pods and to get pods/proxy in namespace cpuplan, as the role in docs/audit.md gives them",
            id="no right",
        ),
        pytest.param(
            ApiAnswer(404, b"there are /metrics, /healthz, /readyz and /audit\n"),
            "the agent cpuplan-agent-x7 has no page /explain: it is older than this command, or runs with "
            "--explain=off; update it, or turn the page on",
            id="older agent",
        ),
        pytest.param(
            status(404, "NotFound", "gone"),
            "the agent cpuplan-agent-x7 is gone; ask again in a moment, when another has taken its place",
            id="agent is gone",
        ),
        pytest.param(
            ApiAnswer(503, b"not there yet\n"),
            f"the agent cpuplan-agent-x7 cannot be asked: GET {AGENT}:9465/proxy/explain was answered with 503: 'not "
            "there yet'; ask again in a moment, or see its log",
            id="agent starts",
        ),
        pytest.param(
            ApiAnswer(200, b"<html>"),
            f"the agent cpuplan-agent-x7 cannot be asked: GET {AGENT}:9465/proxy/explain: the answer is no JSON: "
            "'<html>'; ask again in a moment, or see its log",
            id="no JSON",
        ),
        pytest.param(
            ApiAnswer(200, b'{"version": 2}'),
            "the agent cpuplan-agent-x7 answers in version 2, this command understands version 1; use a cpuplan of the "
            "agent's version",
            id="later version",
        ),
        pytest.param(
            ApiAnswer(200, b'{"version": 1, "node": "gpu-1"}'),
            "the answer of the agent cpuplan-agent-x7 cannot be read, a field is missing or malformed: "
            "KeyError('secondsOld'); use a cpuplan of the agent's version",
            id="malformed",
        ),
    ],
)
def test_without_the_agents_part_the_plan_is_explained_and_the_reason_is_one_sentence(
    explain_pod: Command, agent: OneAgent, answer: ApiAnswer, sentence: str
) -> None:
    agent.answer = answer

    shown = explain_pod()

    assert (shown.exit_code, shown.complaint, shown.facts["agent"]) == (0, "", sentence)
    assert shown.facts["plan"] == "generation 3, Pinned"
    assert "core 0,112 of NUMA node 0 for GPU 0000:1b:00.0" in shown.output
    document = explain_pod("-o", "json").document
    assert (document["agent"], document["agentTrouble"], document["generation"]) == (None, sentence, 3)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"uid": "another"},
            "the agent cpuplan-agent-x7 speaks of another pod of that name, with the UID another; ask again in a "
            "moment",
        ),
        (
            {"uid": "", "notes": ("it knows no such pod",), "containers": ()},
            "the agent cpuplan-agent-x7 does not know the pod: it knows no such pod; ask again in a moment",
        ),
        (
            {"generation": 2},
            "the agent cpuplan-agent-x7 speaks of generation 2 of the plan, the pod shows 3; ask again in a moment",
        ),
        (
            {"node": "gpu-2"},
            "the agent cpuplan-agent-x7 is that of node gpu-2, the pod is on gpu-1; ask the agent there",
        ),
    ],
)
def test_an_answer_about_something_else_is_not_taken_for_the_pods(
    explain_pod: Command, agent: OneAgent, change: dict[str, Any], sentence: str
) -> None:
    agent.explained = replace(agent.explained, **change)

    assert explain_pod().facts["agent"] == sentence


def test_a_user_who_may_not_list_agents_is_told_the_role(explain_pod: Command, agent: OneAgent, api: FakeApi) -> None:
    api.fail(403, times=9, path_part="/namespaces/cpuplan/pods")

    answer = explain_pod()

    assert answer.exit_code == 0
    assert answer.facts["agent"].startswith("the agent of node gpu-1 was not asked: ")
    assert answer.facts["agent"].endswith(" in namespace cpuplan, as the role in docs/audit.md gives them")


def test_a_node_without_an_agent_is_told(explain_pod: Command, agent: OneAgent, api: FakeApi) -> None:
    api.remove(AGENT)

    assert explain_pod().facts["agent"] == (
        "there is no cpuplan agent on node gpu-1 in namespace cpuplan; name the release's namespace with "
        "--agent-namespace, or let the DaemonSet run there"
    )


def test_of_two_agents_the_ready_one_is_asked(explain_pod: Command, agent: OneAgent, api: FakeApi) -> None:
    put_agent(api, pod_path("cpuplan", "cpuplan-agent-a1"), status={"phase": "Failed"})

    assert explain_pod().facts["agent"] == "that of gpu-1, generation 3, 1.5 s ago"


def test_the_release_may_be_in_another_namespace(
    explain_pod: Command, agent: OneAgent, api: FakeApi, explained: PodExplained
) -> None:
    elsewhere = pod_path("gpu-system", "agent-1")
    put_agent(api, elsewhere)
    other = OneAgent(explained)
    api.serve_page(f"{elsewhere}:9465", "explain", other)

    explain_pod("--agent-namespace", "gpu-system")

    assert (len(other.asked), len(agent.asked)) == (1, 0)


def test_an_agent_that_never_answers_is_waited_for_once(
    explain_pod: Command, agent: OneAgent, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    asked = []

    def hang(request: Request) -> ApiAnswer:
        asked.append(request)
        over.wait(30)
        return agent(request)

    monkeypatch.setattr(agents, "LIMIT_SECONDS", 0.2)
    api.serve_page(f"{AGENT}:9465", "explain", hang)

    answer = explain_pod()
    over.set()

    assert len(asked) == 1
    assert answer.exit_code == 0
    assert "got no answer: Read timed out. (read timeout=0.2); ask again in a moment" in answer.facts["agent"]


def test_a_plan_that_the_pod_does_not_show_yet_is_explained_beside_the_one_that_it_shows(
    explain_pod: Command, agent: OneAgent
) -> None:
    agent.explained = replace(agent.explained, generation=4, notes=("the plan could not be written\non the pod",))

    answer = explain_pod()

    assert answer.facts["agent"] == "that of gpu-1, generation 4, 1.5 s ago"
    assert answer.facts["says"] == "the plan could not be written on the pod"
    assert answer.output.index("Container engine\n") < answer.output.index(
        "Container engine, as the agent has decided it\n"
    )


def test_a_pod_without_a_plan_is_explained_by_the_agent(
    explain_pod: Command, agent: OneAgent, api: FakeApi, plan: PodPlan
) -> None:
    put_pod(api, None, plan.pod_uid)
    agent.explained = replace(agent.explained, generation=1, notes=("it waits",))

    answer = explain_pod()

    assert answer.exit_code == 0
    assert answer.facts == {
        "pod": "default/llm-0",
        "plan": "none on the pod",
        "agent": "that of gpu-1, generation 1, 1.5 s ago",
        "says": "it waits",
    }
    assert "Container engine, as the agent has decided it" in answer.output
    document = explain_pod("-o", "json").document
    assert (document["pod"], document["generation"], document["containers"]) == ("default/llm-0", 0, {})
    assert document["agent"]["notes"] == ["it waits"]


def test_a_pod_without_a_plan_and_an_agent_is_one_sentence(
    explain_pod: Command, agent: OneAgent, api: FakeApi, plan: PodPlan
) -> None:
    put_pod(api, None, plan.pod_uid)
    agent.answer = ApiAnswer(503, b"not there yet\n")

    answer = explain_pod()

    assert (answer.exit_code, answer.output) == (1, "")
    assert answer.sentence.startswith(
        "cpuplan explain: pod default/llm-0 has no plan yet, and the agent cpuplan-agent-x7 cannot be asked: "
    )


@pytest.mark.parametrize(
    ("conditions", "end"),
    [
        ([], "it is on no node yet"),
        (
            [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: 3 Insufficient cpu."}],
            "it is on no node yet: 0/3 nodes are available: 3 Insufficient cpu.",
        ),
    ],
)
def test_a_pod_on_no_node_is_told_what_the_scheduler_says(
    explain_pod: Command, api: FakeApi, conditions: list[dict[str, str]], end: str
) -> None:
    put_pod(api, None, "u", spec={"containers": []}, status={"conditions": conditions})

    answer = explain_pod()

    assert (answer.exit_code, answer.sentence) == (1, f"cpuplan explain: pod default/llm-0 has no plan yet: {end}")


def test_a_plan_copied_from_another_pod_is_not_the_one_that_the_agent_explains(
    explain_pod: Command, agent: OneAgent, api: FakeApi, plan: PodPlan
) -> None:
    put_pod(api, plan, "fresh")
    agent.explained = replace(agent.explained, uid="fresh")

    answer = explain_pod()

    assert answer.facts["agent"] == "that of gpu-1, generation 3, 1.5 s ago"
    assert "Container engine, as the agent has decided it" in answer.output


def test_a_pod_that_has_ended_is_explained_with_what_the_agent_says_of_it(
    explain_pod: Command, agent: OneAgent
) -> None:
    agent.explained = replace(agent.explained, generation=0, notes=("the pod has ended",), containers=())

    answer = explain_pod()

    assert (answer.facts["agent"], answer.facts["says"]) == ("that of gpu-1, no plan, 1.5 s ago", "the pod has ended")
    assert "Container engine\n" in answer.output


def test_an_agents_url_can_be_given(explain_pod: Command, agent: OneAgent, api: FakeApi) -> None:
    answer = explain_pod("--agent-url", f"{api.url}{AGENT}:9465/proxy/explain")

    assert answer.facts["agent"] == "that of gpu-1, generation 3, 1.5 s ago"
    assert agent.asked == [{"namespace": "default", "pod": "llm-0"}]


def test_a_url_of_a_busy_agent_is_to_be_asked_again(explain_pod: Command, agent: OneAgent, api: FakeApi) -> None:
    agent.answer = ApiAnswer(503, b"busy with other questions\n")
    url = f"{api.url}{AGENT}:9465/proxy/explain"

    answer = explain_pod("--agent-url", url)

    assert (answer.exit_code, answer.facts["agent"]) == (
        0,
        f"the agent cannot be asked now: {url}?namespace=default&pod=llm-0 was answered with 503: busy with other "
        "questions; ask again in a moment",
    )


@pytest.mark.parametrize("url", ["http://[::1", "http://127.0.0.1:1/explain", "http://foo bar/"])
def test_a_url_that_cannot_be_asked_costs_the_agents_part_alone(
    explain_pod: Command, agent: OneAgent, url: str
) -> None:
    answer = explain_pod("--agent-url", url)

    assert answer.exit_code == 0
    assert answer.facts["agent"].startswith(f"the agent cannot be asked: {url}")


def test_a_tree_stands_for_the_node_and_no_agent_is_asked(
    explain_pod: Command, agent: OneAgent, server: HostRoot
) -> None:
    answer = explain_pod("--sysfs-root", server.sys)

    assert (agent.asked, "agent" in answer.facts) == ([], False)
    assert "Reasons" in answer.output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--agent-url", "http://x/explain"], "--agent-url names the agent that is asked about a pod"),
        (
            ["llm-0", "--agent-url", "http://x/explain", "--sysfs-root", "/"],
            "give --agent-url or --sysfs-root, not both",
        ),
        (["llm-0", "--agent-url", "file:///etc/passwd"], "'file:///etc/passwd"),
    ],
)
def test_what_makes_no_sense_together_is_said(
    cpuplan: Command, agent: OneAgent, kubeconfig: Path, words: list[str], sentence: str
) -> None:
    answer = cpuplan("explain", *words, "--kubeconfig", kubeconfig)

    assert answer.exit_code in (1, 2)
    assert answer.sentence.startswith(f"cpuplan explain: {sentence}")
