"""Tells long random stories of nodes and looks for violated rules.

`PYTHONPATH=operator:. python -m tests.agent.story_search 200` tells so many, of a hundred events each; its exit
status is 1 where a rule was violated, and then the end of that story is printed.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from cpuplan.agent.process import assemble
from cpuplan.host.root import HostRoot
from cpuplan.kube.connection import connect
from tests.agent.node import ManualClock, TestNode, settings_for
from tests.agent.story import RestlessError, Story
from tests.agent.story_rules import look, violations
from tests.fakeapi import FakeApi
from tests.fakekubelet import FakePodResources
from tests.machines import write_machine

MACHINES = ("nps4-four-gpus", "worn-server", "gh200", "h100-server", "vm-without-locality", "gb200-tray")
EVENTS = 100
_LAST_EVENTS = 15


@contextmanager
def running_node(machine: str, folder: Path) -> Iterator[TestNode]:
    """A node of its own: a machine's trees, a kubelet, an API server and the agent, all of this process."""
    tree = write_machine(machine, folder / "machine")
    root = HostRoot(tree.sys, tree.proc, folder / "cgroup")
    root.cgroup.mkdir()
    (root.cgroup / "cgroup.controllers").write_text("cpuset cpu memory\n")
    with FakeApi() as api, FakePodResources(folder / "kubelet.sock") as kubelet:
        connection = connect(api.write_kubeconfig(folder / "kubeconfig"))
        settings, clock = settings_for(root, kubelet.socket), ManualClock()
        assembled = assemble(settings, connection, monotonic=clock)
        node = TestNode(machine, api, kubelet, root, connection, clock, assembled, settings)
        yield node
        node.assembled.kubelet.close()
        connection.close()


def violations_in(node: TestNode, seed: int, folder: Path, events: int = EVENTS) -> list[str]:
    """The end of the story and the rules that it violates; empty where it keeps all."""
    story, before = Story(node, seed, folder), None
    for _ in range(events):
        try:
            story.go_on()
        except RestlessError as error:
            return [*story.told[-_LAST_EVENTS:], f"the agent does not come to rest: {error}"]
        found = violations(look(story, before))
        if found:
            return [*story.told[-_LAST_EVENTS:], *found]
        before = look(story, None)
    return []


def _search(seed: int) -> list[str]:
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="cpuplan-story-") as name:
        folder = Path(name)
        with running_node(MACHINES[seed % len(MACHINES)], folder) as node:
            found = violations_in(node, seed, folder)
    return [f"story {seed}:", *found] if found else []


def main(arguments: list[str]) -> int:
    """Tells as many stories as the argument says, on every CPU of the mask."""
    count = int(arguments[0]) if arguments else 200
    # gRPC's threads do not survive a fork: each process starts from nothing.
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=get_context("spawn")) as pool:
        violated = [found for found in pool.map(_search, range(count)) if found]
    print(f"{count} stories of {EVENTS} events, {len(violated)} violations")  # noqa: T201 - a program's output
    print("\n".join(line for found in violated[:3] for line in found))  # noqa: T201
    return 1 if violated else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
