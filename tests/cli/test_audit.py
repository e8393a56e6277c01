"""`cpuplan audit`: through the API server, from an agent's URL, and of this machine's processes."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from cpuplan.host.root import HostRoot
from cpuplan.host.sysfs import read_topology
from cpuplan.model.cpulist import parse_cpu_list
from cpuplan.model.pools import VisiblePools
from cpuplan.model.request import WorkerDevice
from cpuplan.planning.audit import GpuUser, audit
from tests.cli.answers import Answer
from tests.machines import write_machine

Command = Callable[..., Answer]
GPU_OF_NODE_0, GPU_OF_NODE_1 = "0000:1b:00.0", "0000:9d:00.0"


def user(name: str, mask: str, gpu: str, **facts: Any) -> GpuUser:
    """A container of the pod `name`, which lies in the namespace of its first part."""
    namespace, pod = name.split("/")
    pools = VisiblePools({}, is_sized=True)
    return GpuUser(
        namespace, f"{pod} container engine", (WorkerDevice(gpu),), "", parse_cpu_list(mask), None, pools, **facts
    )


@pytest.fixture
def node_audit(server: HostRoot) -> dict[str, Any]:
    """An agent's answer: one container far from its GPU, one near it, one planned and far."""
    topology = read_topology(server)
    users = [
        user("team-a/far", "0-7", GPU_OF_NODE_1),
        user("team-b/near", "0-7", GPU_OF_NODE_0),
        user("team-b/asked", "0-7", GPU_OF_NODE_1, is_planned=True),
    ]
    return {
        "version": 1,
        "node": "gpu-1",
        "secondsOld": 4.0,
        "containers": [audit(each, topology).to_document() for each in users],
    }


class Agents:
    """HTTP on loopback that answers for given paths; every other path is 404."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: list[str] = []
        agents = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                agents.asked.append(self.path)
                status, content = agents.answers.get(path, (404, {"kind": "Status", "message": "not found"}))
                body = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = Thread(target=self._server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        """Ends answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def agents() -> Iterator[Agents]:
    """A server without any answer yet."""
    made = Agents()
    yield made
    made.stop()


POD_LIST = "/api/v1/namespaces/cpuplan/pods"


def agent_pod(name: str, node: str) -> dict[str, Any]:
    ports = [{"name": "metrics", "containerPort": 9465}]
    return {"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [{"name": "agent", "ports": ports}]}}


@pytest.fixture
def kubeconfig(agents: Agents, tmp_path: Path, node_audit: dict[str, Any]) -> Path:
    """A cluster with agents on two nodes; the one on gpu-2 does not answer."""
    items = [agent_pod("cpuplan-agent-1", "gpu-1"), agent_pod("cpuplan-agent-2", "gpu-2")]
    agents.answers[POD_LIST] = (200, {"metadata": {}, "items": items})
    agents.answers[f"{POD_LIST}/cpuplan-agent-1:9465/proxy/audit"] = (200, node_audit)
    path = tmp_path / "kubeconfig"
    cluster = {"clusters": [{"name": "c", "cluster": {"server": agents.url}}], "users": [{"name": "u", "user": {}}]}
    context = {"contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x"}
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **cluster, **context}))
    return path


def test_the_agents_are_asked_through_the_api_servers_proxy(cpuplan: Command, kubeconfig: Path, agents: Agents) -> None:
    answer = cpuplan("audit", "--kubeconfig", kubeconfig, "--all")

    assert any("labelSelector=app.kubernetes.io%2Fname%3Dcpuplan" in path for path in agents.asked)
    rows = [line.split() for line in answer.output.splitlines() if line.startswith("gpu-1 ")]
    assert [(row[1], row[4], row[-1]) for row in rows] == [
        ("team-a/far", "no", "remote-cpus"),
        ("team-b/near", "no", "-"),
        ("team-b/asked", "yes", "remote-cpus"),
    ]


def test_an_agent_that_cannot_be_asked_is_named_and_the_others_are_shown(cpuplan: Command, kubeconfig: Path) -> None:
    answer = cpuplan("audit", "--kubeconfig", kubeconfig)

    assert answer.exit_code == 1
    assert answer.complaint.startswith(
        "cpuplan audit: the agent cpuplan-agent-2 has no page /audit: it is older than this command, or runs with "
        "--audit=off; "
    )
    assert "team-a/far" in answer.output


def test_by_default_pods_without_a_plan_and_with_findings_are_listed(cpuplan: Command, kubeconfig: Path) -> None:
    answer = cpuplan("audit", "--kubeconfig", kubeconfig)

    assert answer.facts == {
        "nodes": "1",
        "with GPUs": "3",
        "with findings": "2",
        "planned": "1",
        "left out": "1 container with findings, of pods that ask for a plan; --all shows them",
    }
    assert "left out" not in cpuplan("audit", "--kubeconfig", kubeconfig, "--all").facts
    assert "team-b/" not in answer.output
    assert "remote-cpus  all CPUs of the mask (0-7) are remote from GPU 0000:9d:00.0, whose local CPUs" in answer.output


def test_one_namespace_can_be_chosen(cpuplan: Command, kubeconfig: Path) -> None:
    answer = cpuplan("audit", "--kubeconfig", kubeconfig, "-n", "team-b", "--all", "-o", "json")

    assert [entry["name"] for entry in answer.document[0]["containers"]] == [
        "near container engine",
        "asked container engine",
    ]


def test_one_node_is_asked_for_on_the_servers_side(cpuplan: Command, kubeconfig: Path, agents: Agents) -> None:
    cpuplan("audit", "--kubeconfig", kubeconfig, "--node", "gpu-1")

    assert any("fieldSelector=spec.nodeName%3Dgpu-1" in path for path in agents.asked)


def test_without_an_agent_it_is_said_where_one_was_looked_for(
    cpuplan: Command, kubeconfig: Path, agents: Agents
) -> None:
    agents.answers[POD_LIST] = (200, {"metadata": {}, "items": []})

    answer = cpuplan("audit", "--kubeconfig", kubeconfig)

    assert (answer.exit_code, answer.complaint) == (
        1,
        "cpuplan audit: there is no cpuplan agent in namespace cpuplan; name the release's namespace with "
        "--agent-namespace\n",
    )


def test_a_user_without_the_right_is_told_what_was_refused(cpuplan: Command, kubeconfig: Path, agents: Agents) -> None:
    agents.answers[POD_LIST] = (403, {"kind": "Status", "reason": "Forbidden", "message": "no right to list pods"})

    answer = cpuplan("audit", "--kubeconfig", kubeconfig)

    assert answer.exit_code == 1
    assert answer.sentence == (
        f"cpuplan audit: the API server at {agents.url} refuses this to the user in kubeconfig {kubeconfig} (403): no "
        "right to list pods; it takes the rights to list pods and to get pods/proxy in namespace cpuplan, as the role "
        "in docs/audit.md gives them"
    )


def test_a_user_without_the_right_to_an_agents_page_is_told_the_role(
    cpuplan: Command, kubeconfig: Path, agents: Agents
) -> None:
    refused = {"kind": "Status", "reason": "Forbidden", "message": "no right to get pods/proxy"}
    agents.answers[f"{POD_LIST}/cpuplan-agent-2:9465/proxy/audit"] = (403, refused)

    answer = cpuplan("audit", "--kubeconfig", kubeconfig)

    assert answer.sentence.startswith(
        "cpuplan audit: the agent cpuplan-agent-2 was not asked: no right to get pods/proxy; it takes the rights to "
    )
    assert answer.sentence.endswith("in namespace cpuplan, as the role in docs/audit.md gives them")


def test_an_agent_without_an_audit_yet_is_quoted_without_the_requests_path(
    cpuplan: Command, kubeconfig: Path, agents: Agents
) -> None:
    agents.answers[f"{POD_LIST}/cpuplan-agent-2:9465/proxy/audit"] = (503, b"not there yet")

    assert cpuplan("audit", "--kubeconfig", kubeconfig).sentence == (
        f"cpuplan audit: the agent cpuplan-agent-2 cannot be asked: the API server at {agents.url} answered 503: 'not "
        "there yet'"
    )


def test_a_namespace_without_gpus_is_told_with_those_that_have_some(
    cpuplan: Command, agents: Agents, node_audit: dict[str, Any]
) -> None:
    agents.answers["/audit"] = (200, node_audit)
    words = ("audit", "--url", f"{agents.url}/audit", "-n")

    assert (
        "no running container of namespace team-x has GPUs on these nodes; those that have: team-a, team-b"
        in cpuplan(*words, "team-x").output
    )
    assert "no running container" not in cpuplan(*words, "team-a").output
    node_audit["containers"] = []
    assert cpuplan(*words, "team-x").output.endswith("on these nodes, and no other namespace has one\n")


def test_processes_are_in_no_namespace(cpuplan: Command) -> None:
    answer = cpuplan("audit", "--local", "-n", "team-a")

    assert (answer.exit_code, answer.output) == (2, "")
    assert answer.sentence == "cpuplan audit: --local looks at processes, which are in no namespace; leave out -n"


def test_an_agents_url_needs_no_cluster(cpuplan: Command, agents: Agents, node_audit: dict[str, Any]) -> None:
    agents.answers["/audit"] = (200, node_audit)

    answer = cpuplan("audit", "--url", f"{agents.url}/audit")

    assert (answer.exit_code, answer.facts["nodes"]) == (0, "1")
    assert "gpu-1  team-a/far container engine" in answer.output


@pytest.mark.parametrize(
    ("status", "content", "sentence"),
    [
        (503, b"not there yet\n", "was answered with 503: not there yet"),
        (200, b"<html>", "cannot be read: Expecting value"),
        (200, [], "the answer is no audit of version 1: its version is None"),
        (200, {"version": 2}, "the answer is no audit of version 1: its version is 2"),
        (200, {"version": 1, "node": "x"}, "a field is missing or malformed: KeyError('secondsOld')"),
    ],
)
def test_an_answer_that_is_no_audit_is_one_sentence(
    cpuplan: Command, agents: Agents, status: int, content: Any, sentence: str
) -> None:
    agents.answers["/audit"] = (status, content)

    answer = cpuplan("audit", "--url", f"{agents.url}/audit")

    assert answer.exit_code == 1
    assert sentence in answer.complaint
    assert answer.complaint.count("\n") == 1


@pytest.mark.parametrize("url", ["http://foo bar/", "http://[::1", "http://127.0.0.1:port/", "http://"])
def test_a_url_that_cannot_be_asked_is_one_sentence(cpuplan: Command, url: str) -> None:
    answer = cpuplan("audit", "--url", url)

    assert (answer.exit_code, answer.complaint.count("\n")) == (1, 1)
    assert answer.complaint.startswith(f"cpuplan audit: {url} cannot be read: ")


def test_a_server_that_does_not_speak_http_is_one_sentence(cpuplan: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"SSH-2.0-other\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/audit"
        answer = cpuplan("audit", "--url", url)
        thread.join()

    assert (answer.exit_code, answer.complaint) == (1, f"cpuplan audit: {url} cannot be read: SSH-2.0-other\n")


def test_what_is_no_url_is_said(cpuplan: Command) -> None:
    answer = cpuplan("audit", "--url", "file:///etc/passwd")

    assert (answer.exit_code, answer.complaint) == (
        1,
        "cpuplan audit: 'file:///etc/passwd' is no URL of an agent; expected such as http://10.0.0.7:9465/audit\n",
    )


@pytest.fixture
def machine_with_processes(tmp_path: Path) -> HostRoot:
    """An H100 server with a process on a GPU of each node; both may run on node 0 only, at a quota of four CPUs."""
    root = write_machine("h100-server", tmp_path / "host")
    for process_id, minor, threads in ((41, 0, "8"), (42, 4, "2")):
        folder = root.proc / str(process_id)
        (folder / "fd").mkdir(parents=True)
        (folder / "fd" / "3").symlink_to(f"/dev/nvidia{minor}")
        (folder / "comm").write_text("engine\n")
        (folder / "status").write_text("Cpus_allowed_list:\t0-55\n")
        (folder / "cgroup").write_text("0::/job\n")
        (folder / "environ").write_text(f"OMP_NUM_THREADS={threads}\0")
    (root.cgroup / "job").mkdir()
    (root.cgroup / "job" / "cpu.max").write_text("400000 100000\n")
    return root


def test_a_machine_without_kubernetes_is_audited_by_its_processes(
    cpuplan: Command, machine_with_processes: HostRoot
) -> None:
    answer = cpuplan("audit", "--local", "--sysfs-root", machine_with_processes.sys, "-o", "json")

    (node,) = answer.document
    found = [
        (each["name"], each["devices"], each["quota"], [f["test"] for f in each["findings"]])
        for each in node["containers"]
    ]
    assert found == [
        ("process 41 engine", [GPU_OF_NODE_0], 4.0, ["pools-over-quota"]),
        ("process 42 engine", [GPU_OF_NODE_1], 4.0, ["remote-cpus"]),
    ]


def test_this_machine_can_be_audited(cpuplan: Command) -> None:
    answer = cpuplan("audit", "--local")

    assert answer.exit_code == 0
    assert answer.facts["nodes"] == "1"


def test_a_tree_without_local_is_wrong_usage(cpuplan: Command, machine_with_processes: HostRoot) -> None:
    answer = cpuplan("audit", "--sysfs-root", machine_with_processes.sys)

    assert answer.exit_code == 2
