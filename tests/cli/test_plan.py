"""`cpuplan plan`: the plan for any tree, with reasons."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cpuplan.host.root import HostRoot
from cpuplan.model.cpulist import parse_cpu_list
from cpuplan.model.plan import CpuPlan
from tests.cli.answers import Answer
from tests.conftest import TreeOf

Command = Callable[..., Answer]


def test_the_plan_of_the_readme_is_made(cpuplan: Command, server: HostRoot) -> None:
    words = ["--setting", "auto", "--device", "0000:1b:00.0", "--sysfs-root", server.sys, "--mask", "0-31"]

    answer = cpuplan("plan", *words, "--quota", "12.5")

    assert (answer.exit_code, answer.complaint) == (0, "")
    wanted = {"reason": "pinned", "mask": "0-31 (32 CPUs)", "quota": "12.5 CPUs", "usable": "12 CPUs at once"}
    assert wanted.items() <= answer.facts.items()
    assert (answer.facts["pinned"], answer.facts["result CPU"], answer.facts["pools float on"]) == (
        "0,31",
        "31",
        "1-30",
    )
    assert "0       0000:1b:00.0  0     core 0 of NUMA node 0 for GPU 0000:1b:00.0" in answer.output
    assert "Pools on the 10 CPUs left" in answer.output


def test_the_json_reads_back_as_the_plan(cpuplan: Command, server: HostRoot) -> None:
    answer = cpuplan("plan", "--device", "1B:00.0", "--device", "9d:00.0", "--sysfs-root", server.sys, "-o", "json")

    plan, shown = CpuPlan.from_json(answer.output), answer.document
    assert [sorted(worker.cpus) for worker in plan.workers if worker] == [[0, 112], [56, 168]]
    assert shown["addresses"] == ["0000:1b:00.0", "0000:9d:00.0"]
    assert shown["pools"] == {
        "left": plan.left,
        "preprocessThreads": plan.preprocess_threads,
        "pngThreads": plan.png_threads,
        "encodeWorkers": plan.encode_workers,
        "copyWorkers": plan.copy_workers,
    }


@pytest.mark.parametrize(
    ("workers", "addresses"),
    [
        ("0,0,1,-", ["0000:1b:00.0", "0000:1b:00.0", "0000:43:00.0", None]),
        ("1, 0", ["0000:43:00.0", "0000:1b:00.0"]),
        ("-", [None]),
    ],
)
def test_workers_name_devices_by_their_place(
    cpuplan: Command, server: HostRoot, workers: str, addresses: list[str | None]
) -> None:
    words = ["--device", "1b:00.0", "--device", "43:00.0", "--sysfs-root", server.sys, "-o", "json"]

    assert cpuplan("plan", *words, f"--workers={workers}").document["addresses"] == addresses


def test_without_mask_and_quota_the_trees_own_count(cpuplan: Command, server: HostRoot) -> None:
    shown = cpuplan("plan", "--device", "1b:00.0", "--sysfs-root", server.sys, "-o", "json").document

    assert (shown["mask"], shown["quota"], shown["usable"]) == ("0-223", None, 224)


def test_no_limit_can_be_asked_for(cpuplan: Command, server: HostRoot) -> None:
    shown = cpuplan("plan", "--quota", "none", "--mask", "0-7", "--sysfs-root", server.sys, "-o", "json").document

    assert (shown["quota"], shown["usable"], shown["reason"]) == (None, 8, "nothing-to-place")


def test_what_cannot_be_pinned_is_a_plan_with_the_reason(cpuplan: Command, own_machine: TreeOf) -> None:
    root = own_machine("small-vm")

    answer = cpuplan("plan", "--device", "0000:00:1e.0", "--sysfs-root", root.sys)

    assert (answer.exit_code, answer.facts["reason"]) == (0, "would-pin-all")
    assert answer.facts["confidence"] == "unknown"


def test_a_device_that_sysfs_does_not_know_is_said(cpuplan: Command, server: HostRoot) -> None:
    answer = cpuplan("plan", "--device", "ff:00.0", "--sysfs-root", server.sys)

    assert answer.facts["unknown device"] == (
        "0000:ff:00.0: there is no such device here, cpuplan show lists those that are; "
        "its worker is planned on the whole mask"
    )


def test_a_device_that_sysfs_does_not_know_is_warned_of_with_those_that_are_there(
    cpuplan: Command, own_machine: TreeOf
) -> None:
    words = ("plan", "--device", "ff:00.0", "--workers", "0,0", "--sysfs-root")

    answer = cpuplan(*words, own_machine("small-vm").sys, "-o", "json")

    assert (answer.exit_code, answer.document["unknownDevices"]) == (0, ["0000:ff:00.0", "0000:ff:00.0"])
    assert answer.sentence == "cpuplan: warning: this host has no device 0000:ff:00.0; it has 0000:00:1e.0"


@pytest.mark.parametrize("mask", [[], ["--mask", "0-2,4-7,16-23"]], ids=["of the tree", "of the command line"])
def test_isolated_cpus_are_left_out_and_named_as_the_agent_does(
    cpuplan: Command, own_machine: TreeOf, mask: list[str]
) -> None:
    words = ["plan", "--device", "17:00.0", "--sysfs-root", own_machine("worn-server").sys, *mask]

    answer = cpuplan(*words)

    assert answer.facts["left out"] == (
        "CPUs 4-5,20-21 of the mask are isolated from the scheduler, so no plan uses them"
    )
    shown = cpuplan(*words, "--why", "-o", "json").document
    assert parse_cpu_list(shown["mask"]).isdisjoint({4, 5, 20, 21})
    assert shown["isolated"] == "4-5,20-21"
    assert shown["reasons"][0] == {
        "topic": "input",
        "text": answer.facts["left out"],
        "sources": [{"file": "/sys/devices/system/cpu/isolated", "value": "4-5,20-21"}],
    }


def test_a_setting_that_is_isolated_is_refused_with_the_reason(cpuplan: Command, own_machine: TreeOf) -> None:
    words = ["plan", "--setting", "4", "--device", "-", "--sysfs-root", own_machine("worn-server").sys]

    answer = cpuplan(*words)

    assert answer.exit_code == 1
    assert answer.sentence == (
        "cpuplan plan: step_thread_core 4: CPU 4 is outside the mask (0-2,6-19,22-23,25-31); choose a CPU of the mask, "
        "or auto; CPUs 4-5,20-21 of the mask are isolated from the scheduler, so no plan uses them"
    )
    assert "input     CPUs 4-5,20-21 of the mask are isolated" in cpuplan(*words, "--why").output


def test_a_mask_of_isolated_cpus_alone_is_planned_on(cpuplan: Command, own_machine: TreeOf) -> None:
    words = ["--setting", "4", "--device", "-", "--sysfs-root", own_machine("worn-server").sys]

    answer = cpuplan("plan", *words, "--mask", "4-5,20-21")

    assert (answer.facts["pinned"], answer.facts["result CPU"]) == ("4-5,20", "5")
    assert answer.facts["left out"] == (
        "every CPU of the mask (4-5,20-21) is isolated from the scheduler, so they are planned on"
    )


@pytest.mark.parametrize(
    ("machine_name", "advice"),
    [
        ("h100-server", "give --device ADDRESS for each worker's GPU (cpuplan show lists 8 GPUs), "),
        ("small-vm", "give --device ADDRESS for each worker's GPU (cpuplan show lists 1 GPU), "),
        ("gh200", "give --device ADDRESS for each worker's GPU (cpuplan show lists 1 GPU), "),
    ],
)
def test_without_a_device_it_is_said_what_to_give(
    cpuplan: Command, own_machine: TreeOf, machine_name: str, advice: str
) -> None:
    facts = cpuplan("plan", "--sysfs-root", own_machine(machine_name).sys).facts

    assert facts["to do"] == f"{advice}or --device - for a worker without one"
    assert "to do" not in cpuplan("plan", "--device", "-", "--sysfs-root", own_machine(machine_name).sys).facts


def test_a_mask_beyond_the_online_cpus_is_refused_with_both(cpuplan: Command, server: HostRoot) -> None:
    answer = cpuplan("plan", "--mask", "0-999", "--sysfs-root", server.sys)

    assert (answer.exit_code, answer.output) == (2, "")
    assert answer.sentence == (
        "cpuplan plan: --mask 0-999: the machine's online CPUs are 0-223, and nothing can run on 224-999; "
        "give CPUs that are online"
    )


def test_one_cpu_left_is_not_called_several(cpuplan: Command, server: HostRoot) -> None:
    answer = cpuplan("plan", "--device", "1b:00.0", "--quota", "1", "--sysfs-root", server.sys)

    assert "Pools on the 1 CPU left" in answer.output


def test_a_quota_too_small_for_the_workers_is_said(cpuplan: Command, server: HostRoot) -> None:
    words = ["--device", "1b:00.0", "--device", "43:00.0", "--quota", "2", "--sysfs-root", server.sys]

    assert cpuplan("plan", *words).facts["shortage"].startswith("2 usable CPUs cannot serve 2 workers")


def test_a_cpu_number_is_planned_or_refused_with_both_numbers(cpuplan: Command, server: HostRoot) -> None:
    words = ["--device", "1b:00.0", "--device", "43:00.0", "--mask", "0-3", "--sysfs-root", server.sys]

    assert cpuplan("plan", "--setting", "1", *words).facts["pinned"] == "1-3"
    refused = cpuplan("plan", "--setting", "2", *words)
    assert refused.exit_code == 1
    assert "2 workers need a core each, 1 is free from CPU 2 up (2)" in refused.sentence


def test_why_gives_a_reason_with_file_and_value_for_every_cpu(cpuplan: Command, server: HostRoot) -> None:
    words = ["--device", "1b:00.0", "--mask", "0-31", "--sysfs-root", server.sys, "--why"]

    answer = cpuplan("plan", *words)

    assert "taken     worker 0 takes core 0: " in answer.output
    assert "          from /sys/devices/system/cpu/cpu0/topology/thread_siblings_list: 0,112\n" in answer.output
    reasons = cpuplan("plan", *words, "-o", "json").document["reasons"]
    assert [reason["topic"] for reason in reasons] == ["input", "topology", "pool", "taken", "taken", "outcome"]


def test_why_explains_a_refusal_too(cpuplan: Command, server: HostRoot) -> None:
    words = ["--setting", "30", "--device", "1b:00.0", "--device", "43:00.0", "--mask", "0-31", "--why"]

    answer = cpuplan("plan", *words, "--sysfs-root", server.sys)

    assert answer.exit_code == 1
    assert "outcome   too-few-cores-above: step_thread_core 30: 2 workers need a core each" in answer.output
    assert answer.sentence.startswith("cpuplan plan: step_thread_core 30: 2 workers need a core each")


ON_NODE_ONE = """
[[gpus]]
address = "0000:1b:00.0"
node = 1
"""


def override(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "override.toml"
    file.write_text(text)
    return file


def test_a_topology_override_is_tried_with_its_difference_to_sysfs(
    cpuplan: Command, server: HostRoot, tmp_path: Path
) -> None:
    file = override(tmp_path, ON_NODE_ONE)
    words = ["plan", "--device", "1b:00.0", "--sysfs-root", server.sys, "--topology-override", file]

    answer = cpuplan(*words)

    assert answer.facts["why"] == "step threads on 56,168, result threads on CPU 111"
    difference = (
        "0000:1b:00.0: sysfs says NUMA node 0 with CPUs 0-55,112-167, "
        "the override says NUMA node 1 with CPUs 56-111,168-223"
    )
    assert answer.facts["override"] == difference
    why = cpuplan(*words, "--why").output
    assert f"topology  the topology override differs from sysfs: {difference}\n" in why
    assert f"          from {file}: 56-111,168-223\n" in why
    shown = cpuplan(*words, "--why", "-o", "json").document
    assert (shown["override"]["file"], shown["override"]["differences"][0]["sentence"]) == (str(file), difference)
    assert [reason["topic"] for reason in shown["reasons"]] == [
        "input", "topology", "topology", "pool", "taken", "taken", "outcome",
    ]  # fmt: skip


def test_an_override_that_changes_nothing_says_so(cpuplan: Command, server: HostRoot, tmp_path: Path) -> None:
    file = override(tmp_path, ON_NODE_ONE.replace("node = 1", "node = 0"))
    words = ["plan", "--device", "1b:00.0", "--sysfs-root", server.sys]

    answer = cpuplan(*words, "--topology-override", file)

    assert answer.facts["override"] == f"{file} says what sysfs says"
    assert answer.facts["why"] == cpuplan(*words).facts["why"]
    assert cpuplan(*words, "-o", "json").document["override"] is None


def test_an_override_raises_the_confidence_in_what_the_firmware_does_not_know(
    cpuplan: Command, own_machine: TreeOf, tmp_path: Path
) -> None:
    root = own_machine("gb200-memory-nodes")
    gpus = [("0008:01:00.0", 0), ("0009:01:00.0", 0), ("0018:01:00.0", 1), ("0019:01:00.0", 1)]
    text = "".join(f'[[gpus]]\naddress = "{address}"\nnode = {node}\n' for address, node in gpus)
    words = ["plan", "--device", "0019:01:00.0", "--sysfs-root", root.sys]

    answer = cpuplan(*words, "--topology-override", override(tmp_path, text))

    assert (cpuplan(*words).facts["confidence"], answer.facts["confidence"]) == ("unknown", "consistent")
    assert answer.facts["why"] == "step threads on 73, result threads on CPU 142"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [("gpus = 1", "expected [[gpus]] tables"), ("<system/>", "no GPU in it")],
    ids=["not our form", "no gpu"],
)
def test_an_override_that_cannot_be_used_is_one_sentence(
    cpuplan: Command, server: HostRoot, tmp_path: Path, text: str, wrong: str
) -> None:
    file = override(tmp_path, text)

    answer = cpuplan("plan", "--sysfs-root", server.sys, "--topology-override", file)

    assert (answer.exit_code, answer.output) == (2, "")
    assert answer.sentence.startswith(f"cpuplan plan: topology override {file}: ")
    assert wrong in answer.sentence


@pytest.mark.parametrize("command", ["show", "plan"])
def test_an_override_that_is_missing_is_one_sentence(
    cpuplan: Command, server: HostRoot, tmp_path: Path, command: str
) -> None:
    answer = cpuplan(command, "--sysfs-root", server.sys, "--topology-override", tmp_path / "none")

    assert (answer.exit_code, answer.output) == (2, "")
    assert answer.sentence == (
        f"cpuplan {command}: topology override {tmp_path}/none: No such file or directory; give an existing file"
    )


def test_a_gpus_place_and_a_workers_turn_are_counted_alike_in_all_sentences(cpuplan: Command, server: HostRoot) -> None:
    """Places and turns from 1; workers and cores, which are named by their number, from 0."""
    tree = ["--sysfs-root", server.sys, "--why"]

    output = cpuplan("plan", "--device", "43:00.0", *tree).output

    assert "core 1,113 of NUMA node 0 for GPU 0000:43:00.0, GPU 2 of 4 there\n" in output
    assert "counted from 0; GPU 0000:43:00.0 is GPU 2 of 4 there and may take every core 1 + k x 4\n" in output
    by_number = cpuplan("plan", "--setting", "100", "--workers=-,-", *tree).output
    assert "0       -       100,212  core 100,212, number 1 from CPU 100 up\n" in by_number
    assert "1       -       101,213  core 101,213, number 2 from CPU 100 up\n" in by_number


def test_a_worker_without_a_core_has_the_number_by_which_everything_else_calls_it(
    cpuplan: Command, server: HostRoot
) -> None:
    words = ["--device", "-", "--device", "-", "--mask", "0-1", "--sysfs-root", server.sys]

    assert "no core is left for worker 1: 2 workers and" in cpuplan("plan", *words).facts["why"]
