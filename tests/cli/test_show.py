"""`cpuplan show` on this machine and on trees."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cpuplan.cli.output import Facts, Table, print_blocks
from cpuplan.host.affinity import process_mask, usable_cpus
from cpuplan.host.root import HostRoot
from cpuplan.model.cpulist import format_cpu_list
from tests.cases import each_case, names_below
from tests.cli.answers import Answer
from tests.conftest import TreeOf
from tests.machines import machine_names, write_machine

Command = Callable[..., Answer]


def test_this_machine_is_shown_with_what_this_process_may_use(cpuplan: Command) -> None:
    answer = cpuplan("show")

    assert (answer.exit_code, answer.complaint) == (0, "")
    assert answer.facts["mask"] == f"{format_cpu_list(process_mask())} ({len(process_mask())} CPUs)"
    assert answer.facts["usable"].startswith(f"{usable_cpus()} of {len(process_mask())} CPUs at once")


def test_a_folder_that_stands_for_sys_is_shown(cpuplan: Command, server: HostRoot) -> None:
    answer = cpuplan("show", "--sysfs-root", server.sys)

    assert answer.facts["CPUs"] == "224 online (0-223) on 112 cores"
    assert "0     0-55,112-167    56" in answer.output
    assert "0000:9d:00.0  NVIDIA  0x030200  1     56-111,168-223" in answer.output


def test_a_folder_that_holds_sys_is_shown_alike(cpuplan: Command, server: HostRoot) -> None:
    assert cpuplan("show", "--sysfs-root", server.sys.parent) == cpuplan("show", "--sysfs-root", server.sys)


def test_the_json_has_the_same_facts(cpuplan: Command, server: HostRoot) -> None:
    shown = cpuplan("show", "--sysfs-root", server.sys, "-o", "json").document

    assert (shown["online"], len(shown["cores"]), shown["cores"][0]) == ("0-223", 112, "0,112")
    assert shown["nodes"][1] == {"node": 1, "cpus": "56-111,168-223", "distances": [32, 10]}
    assert [device["node"] for device in shown["devices"]].count("1") == 4
    assert (shown["quota"], shown["quotaSetBy"], shown["usable"]) == (None, None, 224)
    assert shown["confidence"]["level"] == "consistent"


def test_the_cgroup_that_sets_the_quota_is_named(cpuplan: Command, tmp_path: Path) -> None:
    root = write_machine("h100-server", tmp_path / "host")
    pod = root.cgroup / "kubepods" / "pod1"
    (pod / "engine").mkdir(parents=True)
    (pod / "cpu.max").write_text("250000 100000\n")
    (pod / "engine" / "cpu.max").write_text("800000 100000\n")
    (root.proc / "self" / "cgroup").write_text("0::/kubepods/pod1/engine\n")

    shown = cpuplan("show", "--sysfs-root", root.sys, "-o", "json").document

    assert (shown["quota"], shown["quotaSetBy"], shown["usable"]) == (2.5, str(pod), 2)


def test_a_tree_without_proc_is_not_mixed_with_this_machine(cpuplan: Command, server: HostRoot, tmp_path: Path) -> None:
    shutil.copytree(server.sys, tmp_path / "sys")

    shown = cpuplan("show", "--sysfs-root", tmp_path / "sys", "-o", "json").document

    assert (shown["mask"], shown["quota"], shown["usable"]) == (None, None, 224)


def test_isolated_cpus_and_what_is_wrong_with_a_machine_are_said(cpuplan: Command, own_machine: TreeOf) -> None:
    answer = cpuplan("show", "--sysfs-root", own_machine("vm-without-locality").sys)

    assert answer.facts["confidence"] == "unknown"
    assert "numa-node-unknown  the firmware names no NUMA node for" in answer.output
    assert "isolated" in cpuplan("show", "--sysfs-root", own_machine("worn-server").sys).facts


def test_isolated_cpus_of_the_mask_are_not_counted_as_usable(cpuplan: Command, own_machine: TreeOf) -> None:
    root = own_machine("worn-server")

    facts = cpuplan("show", "--sysfs-root", root.sys).facts
    shown = cpuplan("show", "--why", "--sysfs-root", root.sys, "-o", "json").document

    assert facts["left out"] == "CPUs 4-5,20-21 of the mask are isolated from the scheduler, so no plan uses them"
    assert facts["usable"] == "26 of 26 CPUs at once"
    assert (shown["plannable"], shown["usable"]) == ("0-2,6-19,22-23,25-31", 26)
    assert [one["stepCpus"] for one in shown["reasons"]] == ["0,16", "8"]


def test_an_override_is_shown_with_its_difference_to_sysfs(cpuplan: Command, server: HostRoot, tmp_path: Path) -> None:
    file = tmp_path / "override.toml"
    file.write_text(
        '[[gpus]]\naddress = "1b:00.0"\nnode = 1\n[[gpus]]\naddress = "0000:99:00.0"\nnode = 0\n', encoding="utf-8"
    )
    words = ["show", "--sysfs-root", server.sys, "--topology-override", file]

    answer = cpuplan(*words, "--why")

    assert (
        "Topology override\nDIFFERENCE FROM SYSFS\n"
        "0000:1b:00.0: sysfs says NUMA node 0 with CPUs 0-55,112-167, "
        "the override says NUMA node 1 with CPUs 56-111,168-223\n"
        "0000:99:00.0: the override places it on NUMA node 0, this host has no such device\n"
    ) in answer.output
    assert "0000:1b:00.0  NVIDIA  0x030200  1     56-111,168-223" in answer.output
    assert re.search(rf"node of 0000:1b:00.0, overridden +{file} +1\n", answer.output)
    assert re.search(r"node of 0000:1b:00.0 +\S+/0000:1b:00.0/numa_node +0\n", answer.output)
    shown = cpuplan(*words, "-o", "json").document
    assert [difference["sentence"][:12] for difference in shown["override"]["differences"]] == [
        "0000:1b:00.0",
        "0000:99:00.0",
    ]
    assert cpuplan("show", "--sysfs-root", server.sys, "-o", "json").document["override"] is None


def test_why_names_file_and_value_of_every_fact(cpuplan: Command, server: HostRoot) -> None:
    answer = cpuplan("show", "--why", "--sysfs-root", server.sys)

    wanted = [
        f"{server.cpu_folder}/online",
        f"{server.cpu_folder}/cpu0/topology/thread_siblings_list",
        f"{server.node_folder}/node1/cpulist",
        f"{server.pci_folder}/0000:9d:00.0/numa_node",
        f"{server.pci_folder}/0000:9d:00.0/local_cpulist",
    ]
    assert [path for path in wanted if path not in answer.output] == []


def test_the_json_has_the_reasons_and_sources_too(cpuplan: Command, server: HostRoot) -> None:
    words = ["show", "--sysfs-root", server.sys, "-o", "json"]

    shown = cpuplan(*words, "--why").document

    assert shown["reasons"][0] == {
        "device": "0000:1b:00.0",
        "stepCpus": "0,112",
        "resultCpu": 55,
        "reason": "pinned",
        "why": "core 0,112 of NUMA node 0 for GPU 0000:1b:00.0, GPU 1 of 4 there",
    }
    assert {
        "fact": "CPUs near 0000:9d:00.0",
        "file": f"{server.pci_folder}/0000:9d:00.0/local_cpulist",
        "value": "56-111,168-223",
    } in shown["sources"]
    without = cpuplan(*words).document
    assert (without["reasons"], without["sources"]) == ([], [])


def sources_of(cpuplan: Command, root: HostRoot) -> dict[str, list[str]]:
    """File and value by fact, from the table."""
    table = cpuplan("show", "--why", "--sysfs-root", root.sys).output.split("Sources\n")[1]
    return {row[0]: row[1:] for row in (re.split(r"  +", line) for line in table.splitlines())}


def test_a_value_is_shown_as_it_stands_in_the_file_and_not_as_it_was_understood(
    cpuplan: Command, tmp_path: Path
) -> None:
    root = write_machine("h100-server", tmp_path / "host")
    lists = [root.cpu_folder / f"cpu{cpu}" / "topology" / "thread_siblings_list" for cpu in (0, 1, 2)]
    lists[0].unlink()
    lists[1].write_text("garbage\n")
    lists[2].write_text("002,114\n")
    (root.pci_folder / "0000:1b:00.0" / "local_cpulist").write_text("\n")
    (root.cpu_folder / "isolated").unlink()

    seen = sources_of(cpuplan, root)

    assert seen["core of CPU 0"] == [str(lists[0]), "missing"]
    assert seen["core of CPU 1"] == [str(lists[1]), "malformed: 'garbage'"]
    assert seen["core of CPU 2"] == [str(lists[2]), "002,114"]
    assert seen["core of CPU 114"][1] == "2,114"
    assert seen["CPUs near 0000:1b:00.0"][1] == "empty"
    assert seen["isolated CPUs"] == [f"{root.cpu_folder}/isolated", "missing"]
    document = cpuplan("show", "--why", "-o", "json", "--sysfs-root", root.sys).document
    values = {fact["fact"]: fact["value"] for fact in document["sources"]}
    assert (values["core of CPU 0"], values["core of CPU 1"]) == (None, "garbage")


def test_mask_distances_and_kind_have_their_files_too(cpuplan: Command, tmp_path: Path) -> None:
    root = write_machine("h100-server", tmp_path / "host")
    (root.proc / "self" / "status").write_text("Name:\tx\nCpus_allowed_list:\t0-7\n")

    seen = sources_of(cpuplan, root)

    assert seen["mask"] == [f"{root.proc}/self/status (Cpus_allowed_list)", "0-7"]
    assert seen["distances of NUMA node 1"] == [f"{root.node_folder}/node1/distance", "32 10"]
    assert seen["vendor of 0000:1b:00.0"] == [f"{root.pci_folder}/0000:1b:00.0/vendor", "0x10de"]
    assert seen["class of 0000:1b:00.0"] == [f"{root.pci_folder}/0000:1b:00.0/class", "0x030200"]


def test_the_files_of_every_cgroup_that_could_limit_are_named(cpuplan: Command, tmp_path: Path) -> None:
    """Also where no level sets a limit, and where one cannot be understood."""
    root = write_machine("h100-server", tmp_path / "host")
    pod = root.cgroup / "kubepods" / "pod1"
    (pod / "engine").mkdir(parents=True)
    (pod / "cpu.max").write_text("three words here\n")
    (pod / "cpuset.cpus.effective").write_text("0-15\n")
    (pod / "engine" / "cpu.max").write_text("max 100000\n")
    (root.proc / "self" / "cgroup").write_text("0::/kubepods/pod1/engine\n")

    facts = cpuplan("show", "--why", "--sysfs-root", root.sys, "-o", "json").document["sources"]

    assert [(fact["file"], fact["value"]) for fact in facts if fact["fact"] in ("cpuset", "quota")] == [
        (f"{pod}/cpuset.cpus.effective", "0-15"),
        (f"{pod}/engine/cpu.max", "max 100000"),
        (f"{pod}/cpu.max", "three words here"),
    ]


def test_why_says_where_one_worker_would_go_on_each_gpu_but_not_on_the_boards_own_screen(
    cpuplan: Command, server: HostRoot
) -> None:
    table = cpuplan("show", "--why", "--sysfs-root", server.sys).output.split("One worker alone on each device\n")[1]

    rows = [line.split()[:3] for line in table.split("\n\n")[0].splitlines()[1:]]
    assert len(rows) == 8
    assert rows[:2] == [["0000:1b:00.0", "0,112", "55"], ["0000:43:00.0", "1,113", "54"]]


@pytest.mark.parametrize("name", machine_names())
def test_every_described_machine_is_shown(cpuplan: Command, own_machine: TreeOf, name: str) -> None:
    root = own_machine(name)

    assert cpuplan("show", "--why", "--sysfs-root", root.sys).exit_code == 0
    assert json.loads(cpuplan("show", "-o", "json", "--sysfs-root", root.sys).output)["online"]


@each_case("name", names_below("machines"))
def test_every_real_machine_is_shown_and_planned_on(cpuplan: Command, machine: TreeOf, name: str) -> None:
    folder = machine(name).sys.parent

    assert cpuplan("show", "--why", "--sysfs-root", folder).complaint == ""
    assert cpuplan("plan", "--why", "--sysfs-root", folder, "-o", "json").document["mask"]


class Terminal:
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""

    def isatty(self) -> bool:
        return True


LONG = "a sentence that is longer than the narrow terminal on which it has to be read by a person in a hurry"


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("hidden", ["nothing.hidden", "rich.console"], ids=["with rich", "without rich"])
def test_nothing_is_wider_than_the_terminal_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch, columns: int, hidden: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setitem(sys.modules, hidden, None)
    terminal = Terminal()

    print_blocks([Facts("", (("why", LONG),)), Table("Rows", ("ID", "WHY"), (("0", LONG),))], terminal)  # type: ignore[arg-type]

    shown = re.sub(r"\x1b\[[0-9;]*m", "", terminal.text)
    assert max(len(line) for line in shown.splitlines()) <= columns
    assert shown.split().count("hurry") == 2


def test_what_is_no_terminal_gets_one_line_per_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_blocks([Table("Rows", ("ID", "WHY"), (("0", LONG), ("1", LONG)))])

    assert capsys.readouterr().out == f"Rows\nID  WHY\n0   {LONG}\n1   {LONG}\n"
