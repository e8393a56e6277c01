"""The agent as a process: started, watched through its endpoints, stopped, and started wrongly."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cpuplan.cli.main import main
from cpuplan.host.root import HostRoot
from tests.agent.node import MakeNode, TestNode
from tests.restored import restored_logging

REPOSITORY = Path(__file__).parents[2]
FIRST = "0000:1b:00.0"
LIMIT_SECONDS = 30.0


class Process:
    """A running `cpuplan agent` and the lines it logs."""

    def __init__(self, arguments: list[str]) -> None:
        path = f"{REPOSITORY / 'operator'}{os.pathsep}{REPOSITORY}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cpuplan", "agent", *arguments],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()

    def wait_for_line(self, part: str) -> str:
        """The first line with this part, once it is there."""
        with self._changed:
            assert self._changed.wait_for(lambda: any(part in line for line in self.lines), LIMIT_SECONDS), self.lines
            return next(line for line in self.lines if part in line)

    @property
    def port(self) -> int:
        """The port of the endpoints."""
        match = re.search(r" port=(\d+) ", self.wait_for_line("agent starts"))
        assert match is not None
        return int(match[1])

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of a GET."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def end(self, number: int) -> int:
        """Sends the signal and waits for the end; the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(LIMIT_SECONDS)
        self._reader.join()
        return code

    def close(self) -> None:
        """Ends the process however it is."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()


@contextmanager
def running_agent(node: TestNode, tmp_path: Path) -> Iterator[Process]:
    """The agent of the node as a process."""
    process = Process(
        [
            *("--node-name", "n1", "--kubeconfig", str(node.api.write_kubeconfig(tmp_path / "agent-kubeconfig"))),
            *("--sysfs-root", str(node.root.sys), "--proc-root", str(node.root.proc)),
            *("--cgroup-root", str(node.root.cgroup), "--podresources-socket", str(node.kubelet.socket)),
            *("--metrics-address", "127.0.0.1:0", "--start-jitter-seconds", "0"),
        ]
    )
    try:
        yield process
    finally:
        process.close()


def test_it_plans_says_so_and_leaves_plans_when_it_is_stopped(make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node("h100-server")
    with running_agent(node, tmp_path) as agent:
        agent.wait_for_line("the kubelet answers")
        node.add_pod("llm-0", gpus={"engine": [FIRST]})
        node.api.wait_until(lambda: "cpuplan.dev/plan" in node.annotations("llm-0"), limit_seconds=LIMIT_SECONDS)
        written = agent.wait_for_line("plan written")
        assert "pod=default/llm-0 container=engine generation=1 status=Pinned reason=pinned" in written
        assert agent.get("/healthz") == (200, "ok\n")
        assert agent.get("/readyz") == (200, "ok\n")
        assert 'cpuplan_agent_plans{reason="pinned"} 1.0' in agent.get("/metrics")[1]
        node.annotate("llm-0", step_thread_core=None)
        node.api.wait_until(lambda: node.annotations("llm-0") == {}, limit_seconds=LIMIT_SECONDS)
        node.annotate("llm-0", step_thread_core="auto")
        node.api.wait_until(lambda: "cpuplan.dev/plan" in node.annotations("llm-0"), limit_seconds=LIMIT_SECONDS)
        assert agent.end(signal.SIGTERM) == 0
        assert any("agent stops" in line for line in agent.lines)
    assert node.status("llm-0") == "Pinned"


def test_killed_and_started_again_it_writes_nothing(make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node("h100-server")
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    with running_agent(node, tmp_path) as agent:
        agent.wait_for_line("plan written")
        agent.end(signal.SIGKILL)
    before = node.annotations("llm-0")
    node.add_pod("meanwhile", gpus={"engine": ["0000:43:00.0"]})
    with running_agent(node, tmp_path) as agent:
        agent.wait_for_line("plan written pod=default/meanwhile")
        assert node.annotations("llm-0")["cpuplan.dev/step-cpus"] == before["cpuplan.dev/step-cpus"]
        assert agent.end(signal.SIGINT) == 0


def test_without_a_kubelet_it_waits_says_so_and_goes_on_when_there_is_one(make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node("h100-server")
    node.kubelet.stop()
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    with running_agent(node, tmp_path) as agent:
        line = agent.wait_for_line("the kubelet cannot be asked")
        assert f"socket {node.kubelet.socket} does not exist; expected its directory to be mounted" in line
        status, text = agent.get("/readyz")
        assert (status, "does not exist" in text) == (503, True)
        assert agent.get("/healthz") == (200, "ok\n")
        node.kubelet.start()
        agent.wait_for_line("reason=pinned")
        assert agent.end(signal.SIGTERM) == 0


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str]]]:
    """Runs `cpuplan agent` in this process: its exit code and the last line of its standard error."""
    monkeypatch.delenv("NODE_NAME", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    def run(*arguments: str) -> tuple[int, str]:
        code = main(["agent", *arguments])
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1, lines
        return code, lines[0]

    with restored_logging():
        yield run


def roots(root: HostRoot) -> list[str]:
    """Flags for the trees."""
    return ["--sysfs-root", str(root.sys), "--proc-root", str(root.proc), "--cgroup-root", str(root.proc)]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "the node is not named: give --node-name or set NODE_NAME"),
        (
            ["--node-name", "n", "--proc-root", "/none"],
            "--proc-root /none is no readable folder; mount the node's there",
        ),
        (["--node-name", "n", "--cgroup-root", "/none"], "--cgroup-root /none is no readable folder"),
        (["--node-name", "n"], "no service account of a pod was found"),
        (["--node-name", "n", "--kubeconfig", "/none"], "kubeconfig /none does not exist; give an existing file"),
        (["--reserved-cpus", "0-x"], "CPU list '0-x': '0-x' is not a CPU number or a range like 0-3"),
        (["--max-pinned-per-pod", "-1"], "'-1' is not a whole number of CPUs (0: no bound)"),
        (["--resync-seconds", "soon"], "'soon' is not a number of seconds from 0 to 86400"),
        (["--device-resources", "gpu"], "'gpu': expected names of extended resources such as nvidia.com/gpu"),
        (["--device-drivers", "GPU"], "'GPU': expected names of DRA drivers such as gpu.nvidia.com, by commas"),
        (["--log-level", "loud"], "'loud' is none of debug, info, warning, error"),
        (["--metrics-address", "here"], "'here' is not an address: expected HOST:PORT such as 0.0.0.0:9465"),
        (["--frobnicate"], "unrecognized arguments: --frobnicate"),
    ],
)
def test_a_wrong_start_ends_with_one_sentence(
    run: Callable[..., tuple[int, str]], arguments: list[str], sentence: str
) -> None:
    code, line = run(*arguments)
    assert code == 2
    assert sentence in line


def test_a_root_that_is_no_sysfs_ends_with_one_sentence(
    run: Callable[..., tuple[int, str]], make_node: MakeNode, tmp_path: Path
) -> None:
    node = make_node("small-vm")
    kubeconfig = str(node.api.write_kubeconfig(tmp_path / "k"))
    code, line = run("--node-name", "n", *roots(HostRoot(tmp_path, tmp_path)), "--kubeconfig", kubeconfig)
    assert code == 2
    assert f"{tmp_path} is no readable sysfs" in line


def test_an_address_that_cannot_be_listened_on_ends_with_one_sentence(
    run: Callable[..., tuple[int, str]], make_node: MakeNode, tmp_path: Path
) -> None:
    node = make_node("small-vm")
    kubeconfig = str(node.api.write_kubeconfig(tmp_path / "k"))
    flags = ["--node-name", "n", *roots(node.root), "--kubeconfig", kubeconfig]
    code, line = run(*flags, "--metrics-address", "192.0.2.1:9465")
    assert code == 2
    assert "cannot listen on 192.0.2.1:9465 for metrics and probes" in line


def test_an_environment_variable_stands_in_for_its_flag(
    run: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_NAME", "n")
    monkeypatch.setenv("CPUPLAN_KUBECONFIG", "/from-the-environment")
    assert "kubeconfig /from-the-environment does not exist" in run()[1]
