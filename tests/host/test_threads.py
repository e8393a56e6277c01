"""The threads of a process, from files and from the kernel."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from cpuplan.host.affinity import process_mask
from cpuplan.host.root import HostRoot
from cpuplan.host.threads import (
    ThreadMask,
    read_allowed_cpus,
    read_cgroup_peers,
    read_process_ids,
    read_thread_masks,
    read_thread_start,
)
from tests.inprocess.threads import waiting_thread


@pytest.fixture
def root(tmp_path: Path) -> HostRoot:
    """An empty /proc."""
    (tmp_path / "proc").mkdir()
    return HostRoot.at(tmp_path)


def write(root: HostRoot, path: str, text: str) -> None:
    file = root.proc / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_the_mask_of_this_process_is_the_kernels() -> None:
    assert read_allowed_cpus("self") == process_mask()
    assert read_allowed_cpus(os.getpid()) == process_mask()


@pytest.mark.parametrize(
    "status",
    [
        pytest.param("", id="empty"),
        pytest.param("Name:\tx\n", id="without the line"),
        pytest.param("Cpus_allowed_list:\t\n", id="an empty list"),
        pytest.param("Cpus_allowed_list:\tbanana\n", id="no list"),
        pytest.param("Cpus_allowed:\tff\n", id="only the mask in hexadecimal"),
    ],
)
def test_a_status_that_does_not_tell_is_unknown(root: HostRoot, status: str) -> None:
    write(root, "7/status", status)

    assert read_allowed_cpus(7, root) is None


def test_threads_come_by_number_with_their_names_and_masks(root: HostRoot) -> None:
    write(root, "7/task/10/status", "Name:\tpool\nCpus_allowed_list:\t0-3,8\n")
    write(root, "7/task/10/comm", "pool\n")
    write(root, "7/task/9/status", "Name:\tmain\nCpus_allowed_list:\t4\n")

    assert read_thread_masks(7, root) == (
        ThreadMask(9, "?", frozenset({4})),
        ThreadMask(10, "pool", frozenset({0, 1, 2, 3, 8})),
    )


def test_a_thread_that_ended_meanwhile_is_left_out(root: HostRoot) -> None:
    (root.proc / "7" / "task" / "9").mkdir(parents=True)

    assert read_thread_masks(7, root) == ()


def test_a_process_that_is_not_there_has_no_threads(root: HostRoot) -> None:
    assert read_thread_masks(4711, root) == ()


def test_the_start_of_a_thread_tells_it_from_others_of_its_number() -> None:
    own = read_thread_start(threading.get_native_id())
    with waiting_thread() as thread_id:
        started = read_thread_start(thread_id)

    assert own is not None
    assert started is not None
    assert started >= own
    assert read_thread_start(thread_id) is None


def test_a_name_with_blanks_and_parentheses_does_not_hide_the_start(root: HostRoot) -> None:
    write(root, "self/task/9/stat", "9 (a) b (c) S " + " ".join(str(number) for number in range(4, 53)))

    assert read_thread_start(9, root) == 22


def test_a_thread_of_another_process_has_no_start_here() -> None:
    assert read_thread_start(os.getppid()) is None


def test_processes_are_the_numbers_in_proc(root: HostRoot) -> None:
    for name in ("1", "20", "3", "self", "net"):
        (root.proc / name).mkdir()

    assert read_process_ids(root) == (1, 3, 20)


def test_peers_are_the_processes_of_this_ones_cgroup(root: HostRoot) -> None:
    write(root, "self/cgroup", "0::/\n")
    write(root, "1/cgroup", "0::/\n")
    write(root, "7/cgroup", "0::/../another\n")
    (root.proc / "8").mkdir()

    assert read_cgroup_peers(root) == (1,)


def test_without_a_cgroup_of_its_own_every_process_is_a_peer(root: HostRoot) -> None:
    write(root, "1/cgroup", "0::/\n")

    assert read_cgroup_peers(root) == (1,)
