"""How far a topology can be trusted, on machines that tell the truth and on those that do not."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from cpuplan.host.root import HostRoot
from cpuplan.host.sysfs import read_topology
from cpuplan.model.cpulist import parse_cpu_list
from cpuplan.model.topology import HostTopology, NumaNode, PciFunction
from cpuplan.planning.confidence import Level, judge_topology

TreeOf = Callable[[str], HostRoot]


def judged(topology: HostTopology) -> tuple[str, list[str]]:
    """The level and the tests that failed."""
    confidence = judge_topology(topology)
    return str(confidence.level), [finding.test for finding in confidence.findings]


@pytest.mark.parametrize(
    ("name", "level", "tests"),
    [
        ("h100-server", "consistent", []),
        ("gb200-tray", "consistent", []),
        ("power9-smt4", "consistent", []),
        ("worn-server", "consistent", []),
        ("gb200-memory-nodes", "unknown", ["node-without-cpus"]),
        ("hybrid-laptop", "unknown", ["numa-node-unknown"]),
        ("small-vm", "unknown", ["numa-node-unknown"]),
        ("vm-without-locality", "unknown", ["numa-node-unknown", "one-list-for-all"]),
    ],
)
def test_an_own_machine_is_judged(name: str, level: str, tests: list[str], own_machine: TreeOf) -> None:
    assert judged(read_topology(own_machine(name))) == (level, tests)


@pytest.mark.cases
@pytest.mark.parametrize(
    ("name", "level", "tests"),
    [
        ("topo-dgx-h100", "consistent", []),
        ("topo-hgx-3131", "consistent", []),
        ("mpibind-tioga-mi250x", "consistent", []),
        ("topo-gb200-nvl4", "consistent", []),
        ("rccl-gfx906-all-on-node0", "suspicious", ["one-list-for-all"]),
        ("rccl-mi100-16gpu-one-node", "suspicious", ["one-list-for-all"]),
        ("hwloc-8em64t-2s2ca2c-buggynuma", "suspicious", ["cpu-on-two-nodes"]),
        ("hwloc-fakeheterocpunuma", "suspicious", ["cpu-on-two-nodes", "cpu-on-no-node"]),
        ("hwloc-offline-cpu0-node0", "suspicious", ["cpu-on-no-node"]),
        ("mpibind-ulna-thunderx2", "unknown", ["numa-node-unknown"]),
    ],
)
def test_a_real_machine_is_judged(name: str, level: str, tests: list[str], machine: TreeOf) -> None:
    assert judged(read_topology(machine(name))) == (level, tests)


def gpu(address: str, node: str | None, local: str | None) -> PciFunction:
    cpus = None if local is None else parse_cpu_list(local)
    return PciFunction(f"0000:{address}:00.0", "0x10de", "0x030200", node, cpus)


def cores(**lists: str) -> Mapping[int, frozenset[int]]:
    """Sibling lists by CPU: `c0="0-1"`."""
    return {int(cpu[1:]): parse_cpu_list(text) for cpu, text in lists.items()}


SOUND = HostTopology(
    online=frozenset(range(4)),
    siblings=cores(c0="0-1", c1="0-1", c2="2-3", c3="2-3"),
    functions=(gpu("01", "0", "0-1"), gpu("02", "1", "2-3")),
    nodes=(NumaNode(0, parse_cpu_list("0-1")), NumaNode(1, parse_cpu_list("2-3"))),
)


def test_a_host_that_does_not_contradict_itself_is_consistent() -> None:
    assert judged(SOUND) == ("consistent", [])


@pytest.mark.parametrize(
    "change",
    [
        {"functions": (gpu("01", "0", "0"), gpu("02", "0", "1"), gpu("03", "1", "2-3"))},
        {"functions": (gpu("01", "0", "0-1"), gpu("02", "0", "1"), gpu("03", "1", "2-3"))},
        {"functions": (gpu("01", "0", "0-1"), gpu("02", "1", "2-3")), "nodes": ()},
    ],
    ids=["each GPU near a cache", "one GPU near a cache", "a kernel without NUMA folders"],
)
def test_what_only_tells_more_or_less_contradicts_nothing(change: dict[str, object]) -> None:
    assert judged(replace(SOUND, **change)) == ("consistent", [])  # type: ignore[arg-type]


def test_a_host_without_gpus_and_nodes_has_nothing_to_contradict() -> None:
    assert judged(replace(SOUND, functions=(), nodes=())) == ("consistent", [])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"functions": (gpu("01", "-1", "0-3"), gpu("02", "1", "2-3"))},
            "the firmware names no NUMA node for 0000:01:00.0 (numa_node is -1 or missing)",
        ),
        (
            {"functions": (gpu("01", None, "0-1"), gpu("02", "1", "2-3"))},
            "the firmware names no NUMA node for 0000:01:00.0 (numa_node is -1 or missing)",
        ),
        (
            {"functions": (gpu("01", "0", "0-1"), gpu("02", "7", ""))},
            "no CPU is local to 0000:02:00.0 (node 7)",
        ),
        (
            {"functions": (gpu("01", "0", "0-1"), gpu("02", "1", "0-3"))},
            "local CPUs lie outside the GPU's NUMA node: 0000:02:00.0 (node 1 has 2-3, its local CPUs are 0-3)",
        ),
        (
            {"functions": tuple(gpu(f"0{number}", "0", "0-1") for number in range(4))},
            "all 4 GPUs name the same local CPUs (0-1) on a host with 2 NUMA nodes",
        ),
        (
            {"functions": (gpu("01", "0", "0-1"), gpu("02", "1", "0-1"))},
            "GPUs of different NUMA nodes name the same CPUs: 0000:01:00.0 (node 0), 0000:02:00.0 (node 1) name 0-1",
        ),
        (
            {"functions": (gpu("01", "0", "0-1"), gpu("02", "1", "0-1")), "nodes": ()},
            "GPUs of different NUMA nodes name the same CPUs: 0000:01:00.0 (node 0), 0000:02:00.0 (node 1) name 0-1",
        ),
        (
            {"functions": (gpu("01", "0", "0-1"), gpu("02", "7", "2-3"))},
            "the host lists no such NUMA node as that of 0000:02:00.0 (node 7)",
        ),
        (
            {"functions": (gpu("01", "0", "0-1"), gpu("02", "0", "1-2")), "nodes": ()},
            "local CPUs of GPUs on one NUMA node overlap without being the same: 0000:01:00.0 (node 0): 0-1, "
            "0000:02:00.0 (node 0): 1-2",
        ),
        (
            {"nodes": (NumaNode(0, parse_cpu_list("0,2")), NumaNode(1, parse_cpu_list("1,3"))), "functions": ()},
            "sibling threads lie on different NUMA nodes: CPUs 0-3",
        ),
        (
            {"siblings": cores(c0="0-1", c1="1", c2="2-3", c3="2-3")},
            "sibling lists contradict each other: CPUs 0",
        ),
        (
            {"nodes": (NumaNode(0, parse_cpu_list("0-1")), NumaNode(1, parse_cpu_list("0-3")))},
            "more than one NUMA node lists CPUs 0-1",
        ),
        ({"nodes": (NumaNode(0, parse_cpu_list("0-2")),), "functions": ()}, "no NUMA node lists CPUs 3"),
    ],
)
def test_a_contradiction_is_named_with_the_values_that_were_seen(change: dict[str, object], sentence: str) -> None:
    confidence = judge_topology(replace(SOUND, **change))  # type: ignore[arg-type]
    assert confidence.level == Level.SUSPICIOUS
    assert sentence in [finding.sentence for finding in confidence.findings]


def test_only_gpus_of_the_deployments_kind_are_judged(own_machine: TreeOf) -> None:
    """A board's own VGA without a node says nothing about the servers' GPUs."""
    topology = read_topology(own_machine("h100-server"))
    vga = replace(topology.functions[0], node="-1")
    topology = replace(topology, functions=(vga, *topology.functions[1:]))
    assert vga.vendor == "0x1a03"
    assert judge_topology(topology).level == Level.SUSPICIOUS
    assert judge_topology(topology, topology.gpus_like(["0000:1b:00.0"])).level == Level.CONSISTENT


@pytest.mark.parametrize(
    ("change", "sources"),
    [
        (
            {"functions": (gpu("01", "-1", "0-3"), gpu("02", None, None))},
            [
                "/sys/bus/pci/devices/0000:01:00.0/numa_node: -1",
                "/sys/bus/pci/devices/0000:02:00.0/numa_node: missing or malformed",
            ],
        ),
        (
            {"functions": (gpu("01", "0", None),)},
            ["/sys/bus/pci/devices/0000:01:00.0/local_cpulist: missing or malformed"],
        ),
        (
            {"functions": (gpu("01", "1", "0-1"),)},
            [
                "/sys/bus/pci/devices/0000:01:00.0/numa_node: 1",
                "/sys/bus/pci/devices/0000:01:00.0/local_cpulist: 0-1",
                "/sys/devices/system/node/node1/cpulist: 2-3",
            ],
        ),
        (
            {"nodes": (NumaNode(0, parse_cpu_list("0-2")), NumaNode(1, parse_cpu_list("2-3")))},
            ["/sys/devices/system/node/node0/cpulist: 0-2", "/sys/devices/system/node/node1/cpulist: 2-3"],
        ),
        (
            {"nodes": (NumaNode(0, parse_cpu_list("0-2")),), "functions": ()},
            ["/sys/devices/system/cpu/online: 0-3", "/sys/devices/system/node/node0/cpulist: 0-2"],
        ),
    ],
)
def test_a_finding_names_the_files_and_the_values_there(change: Mapping[str, object], sources: list[str]) -> None:
    findings = judge_topology(replace(SOUND, **change)).findings  # type: ignore[arg-type]
    assert sources in [list(map(str, finding.sources)) for finding in findings]


def test_a_finding_of_a_placed_gpu_names_the_file_that_places_it() -> None:
    topology = replace(SOUND, functions=(gpu("01", "1", "0-1"),))
    (finding,) = judge_topology(topology, placed_by={"0000:01:00.0": "/etc/topology.toml"}).findings
    assert [source.file for source in finding.sources[:2]] == ["/etc/topology.toml", "/etc/topology.toml"]


def test_a_finding_of_many_cpus_names_the_first_files_alone() -> None:
    siblings = {cpu: frozenset({cpu, (cpu + 1) % 64}) for cpu in range(64)}
    topology = HostTopology(online=frozenset(siblings), siblings=siblings)
    (finding,) = judge_topology(topology).findings
    assert [source.file for source in finding.sources] == [
        f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list" for cpu in range(8)
    ]
