"""The node changes under the agent: CPUs come and go, an administrator corrects it, old API servers set no label."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from cpuplan.agent.process import assemble
from cpuplan.host.root import HostRoot
from cpuplan.model.cpulist import format_cpu_list
from cpuplan.model.errors import HostReadError, OverrideError
from tests.agent.node import MakeNode, TestNode, settings_for

FIRST, SECOND = "0000:1b:00.0", "0000:43:00.0"
ON_THE_OTHER_SOCKET = "0000:9d:00.0"


@pytest.fixture
def node(make_node: MakeNode) -> TestNode:
    """A server with eight GPUs."""
    return make_node("h100-server")


def with_own_files(node: TestNode, tmp_path: Path) -> None:
    """Gives the node trees of which the test may change what the kernel and the driver change; the rest are links."""
    for tree, folders in (("sys", ("devices/system/cpu",)), ("proc", ("self", f"driver/nvidia/gpus/{FIRST}"))):
        overlay(getattr(node.root, tree), tmp_path / tree, folders)
    node.root = HostRoot(tmp_path / "sys", tmp_path / "proc", node.root.cgroup)
    node.restart_agent()


def overlay(tree: Path, folder: Path, changeable: Sequence[str]) -> None:
    """Makes `folder` look like `tree`: links to what is there, and copies of the files in the changeable folders."""
    inner = {path.partition("/")[0] for path in changeable if path}
    folder.mkdir()
    for entry in tree.iterdir():
        if entry.name in inner:
            below = [path.partition("/")[2] for path in changeable if path.partition("/")[0] == entry.name]
            overlay(entry, folder / entry.name, below)
        elif "" in changeable and entry.is_file():
            shutil.copy(entry, folder)
        else:
            (folder / entry.name).symlink_to(entry)


def test_cpus_that_go_offline_leave_masks_at_once(node: TestNode, tmp_path: Path) -> None:
    with_own_files(node, tmp_path)
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.turn()
    assert node.annotations("llm-0")["cpuplan.dev/step-cpus"] == "engine=0,112"
    (node.root.cpu_folder / "online").write_text("1-111,113-223\n")
    node.turn()
    plan = node.plan("llm-0").containers[0][1]
    assert format_cpu_list(plan.mask) == "1-111,113-223"
    assert not plan.pinned & {0, 112}


def test_a_cpu_number_that_went_offline_is_said(node: TestNode, tmp_path: Path) -> None:
    with_own_files(node, tmp_path)
    node.add_pod("llm-0", setting="0", gpus={"engine": [FIRST]})
    node.turn()
    (node.root.cpu_folder / "online").write_text("1-111,113-223\n")
    node.turn()
    assert (node.status("llm-0"), node.plan("llm-0").containers[0][1].reason) == ("Error", "cpu-gone")


def test_isolated_cpus_are_in_no_mask(node: TestNode, tmp_path: Path) -> None:
    with_own_files(node, tmp_path)
    (node.root.cpu_folder / "isolated").write_text("0-7,112-119\n")
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.turn()
    assert format_cpu_list(node.plan("llm-0").containers[0][1].mask) == "8-111,120-223"


def test_exclusive_cpus_that_are_isolated_on_purpose_are_kept(node: TestNode, tmp_path: Path) -> None:
    with_own_files(node, tmp_path)
    (node.root.cpu_folder / "isolated").write_text("0-7,112-119\n")
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.kubelet.set_cpu_ids("default", "llm-0", "engine", [*range(8), *range(112, 120)])
    node.turn()
    assert format_cpu_list(node.plan("llm-0").containers[0][1].mask) == "0-7,112-119"


def test_the_shared_pool_is_where_the_agent_itself_may_run(node: TestNode, tmp_path: Path) -> None:
    with_own_files(node, tmp_path)
    (node.root.proc / "self" / "status").write_text("Cpus_allowed_list:\t16-223\n")
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.turn()
    assert format_cpu_list(node.plan("llm-0").containers[0][1].mask) == "16-223"


def test_a_gpu_that_is_initialised_later_is_placed_then(node: TestNode, tmp_path: Path) -> None:
    with_own_files(node, tmp_path)
    information = node.root.nvidia_folder / FIRST / "information"
    text = information.read_text()
    asleep = "GPU-????????-????-????-????-????????????"
    information.write_text(
        "".join(f"GPU UUID: {asleep}\n" if "UUID" in line else f"{line}\n" for line in text.splitlines())
    )
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.turn()
    assert node.plan("llm-0").containers[0][1].reason == "device-unknown"
    assert "not initialised yet (0000:1b:00.0)" in node.annotations("llm-0")["cpuplan.dev/why"]
    information.write_text(text)
    node.turn()
    assert node.status("llm-0") == "Pinned"


def test_an_override_outranks_sysfs(node: TestNode, tmp_path: Path) -> None:
    override = tmp_path / "override.toml"
    override.write_text(f'[[gpus]]\naddress = "{FIRST}"\nnode = 1\n')
    node.restart_agent(topology_override=override)
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.turn()
    assert min(node.plan("llm-0").containers[0][1].pinned) >= 56


NCCL_ON_NODE_1 = f"""<system version="1">
  <cpu numaid="1" affinity="ff000000,00000000,00000000"><pci busid="{FIRST}" class="0x030200"/></cpu>
</system>
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'[[gpus]]\naddress = "{FIRST}"\nnode = 1\n', "NUMA node 1 with CPUs 56-111,168-223"),
        (NCCL_ON_NODE_1, "NUMA node 1 with CPUs 88-95"),
    ],
    ids=["own form", "NCCL_TOPO_FILE"],
)
def test_an_override_that_differs_from_sysfs_is_logged_once_from_the_start_on(
    node: TestNode, tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, said: str
) -> None:
    override = tmp_path / "override"
    override.write_text(text)
    node.restart_agent(topology_override=override)
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.turn()
    node.clock.advance(60)
    node.turn()
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [
        f"the topology override differs from sysfs file={override} difference='{FIRST}: sysfs says NUMA node 0 with "
        f"CPUs 0-55,112-167, the override says {said}'"
    ]


def test_an_override_that_says_what_sysfs_says_is_not_logged(
    node: TestNode, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    override = tmp_path / "override.toml"
    override.write_text(f'[[gpus]]\naddress = "{FIRST}"\nnode = 0\n')
    node.restart_agent(topology_override=override)
    assert caplog.records == []


def test_an_override_that_cannot_be_used_stops_the_start(node: TestNode, tmp_path: Path) -> None:
    override = tmp_path / "override.toml"
    override.write_text("[gpus]\n")
    settings = settings_for(node.root, node.kubelet.socket, topology_override=override)
    with pytest.raises(OverrideError, match=r"override\.toml: expected \[\[gpus\]\] tables and nothing else"):
        assemble(settings, node.connection)


def test_a_node_without_the_override_s_file_has_none_and_says_so(
    node: TestNode, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One path holds for every node of the DaemonSet."""
    assert node.metric("topology_override_missing") == 0
    node.restart_agent(topology_override=tmp_path / "none.toml")
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.turn()
    assert (node.status("llm-0"), node.metric("topology_override_missing")) == ("Pinned", 1)
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        f"this node has no topology override, sysfs alone says where its GPUs are file={tmp_path}/none.toml"
    ]


def test_a_pod_planned_before_an_override_stays_where_it_is_until_it_asks_again(node: TestNode, tmp_path: Path) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.turn()
    override = tmp_path / "override.toml"
    override.write_text(f'[[gpus]]\naddress = "{FIRST}"\nnode = 1\n')
    node.restart_agent(topology_override=override)
    node.turn()
    assert min(node.plan("llm-0").containers[0][1].pinned) == 0
    node.annotate("llm-0", step_thread_core=None)
    node.turn()
    node.annotate("llm-0", step_thread_core="auto")
    node.turn()
    assert min(node.plan("llm-0").containers[0][1].pinned) >= 56


def test_a_root_without_cpus_stops_the_start(node: TestNode, tmp_path: Path) -> None:
    settings = settings_for(HostRoot(tmp_path, tmp_path, tmp_path), node.kubelet.socket)
    with pytest.raises(HostReadError, match="is no readable sysfs"):
        assemble(settings, node.connection)


def test_a_missing_label_alone_is_set_and_a_stale_one_alone_removed(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.turn()
    node.patch("llm-0", {"metadata": {"labels": {"cpuplan.dev/managed": None}}})
    (patch,) = node.turn()
    assert patch.body["metadata"]["labels"] == {"cpuplan.dev/managed": "true"}
    assert "annotations" not in patch.body["metadata"]
    node.add_pod("other", setting=None)
    node.patch("other", {"metadata": {"labels": {"cpuplan.dev/managed": "true", "app": "x"}}})
    node.turn()
    assert node.labels("other") == {"app": "x"}


def test_what_somebody_changed_in_our_annotations_is_set_right(node: TestNode) -> None:
    node.add_pod("llm-0", gpus={"engine": [FIRST]})
    node.turn()
    before = node.annotations("llm-0")
    node.annotate("llm-0", **{"cpuplan.dev/status": "Off", "cpuplan.dev/why": None, "cpuplan.dev/extra": "x"})
    node.turn()
    assert node.annotations("llm-0") == before


def test_a_device_that_changes_moves_only_its_own_pod(node: TestNode) -> None:
    node.add_pod("a", gpus={"engine": [FIRST]})
    node.add_pod("b", gpus={"engine": [SECOND]})
    node.turn()
    node.turn()
    before = node.annotations("b")["cpuplan.dev/step-cpus"]
    node.add_pod("a", gpus={"engine": [ON_THE_OTHER_SOCKET]}, annotations=node.annotations("a"))
    node.turn()
    assert node.annotations("b")["cpuplan.dev/step-cpus"] == before
    assert [worker.address for worker in node.plan("a").containers[0][1].workers] == [ON_THE_OTHER_SOCKET]
