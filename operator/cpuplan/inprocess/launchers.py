"""A plan in the words of other programs: arguments of vLLM, SGLang, torchrun and taskset, variables of OpenMP.

Each function names the document that fixes the options. Arguments that a plan cannot fill are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..model.cpulist import format_cpu_list
from ..model.podplan import ContainerPlan
from ..model.topology import HostTopology
from ..planning.setting import AUTO

POOL_CPUS_VARIABLE = "CPUPLAN_POOL_CPUS"
"""Set by `cpuplan run --pin` and `cpuplan env -o omp` to the CPUs (a kernel list) on which they keep the command."""


@dataclass(frozen=True, slots=True)
class DevicePlace:
    """One device of the deployment, in the order in which the GPU runtime counts them.

    Attributes:
        address: its PCI address.
        node: the NUMA node that a program may bind the device's workers to; None where `doubt` says why not.
        cpus: where its workers should run: their step CPUs, and the pool CPUs near the device.
        doubt: why no node is given, None where one is.
    """

    address: str
    node: int | None
    cpus: frozenset[int]
    doubt: str | None = None


def device_places(plan: ContainerPlan, topology: HostTopology) -> tuple[DevicePlace, ...]:
    """The devices of the plan's workers, by address.

    That is CUDA_DEVICE_ORDER=PCI_BUS_ID, and the default order too where all devices are of one model.

    A node is given only if processes can be bound to it: sysfs names it, it has CPUs, this container may run
    on one of them, and (under `auto`) the plan puts the worker's step threads on it. Binding to a node without
    CPUs takes memory from the GPU itself (GB200) and leaves no CPU to run on. An administrator's override is
    not part of a published plan: it shows as step threads on another node than that of sysfs.

    A device whose place is in doubt, or whose local CPUs hold no pool CPU, has all pool CPUs.

    Args:
        plan: the published plan.
        topology: the functions and NUMA nodes of this host.
    """
    steps: dict[str, frozenset[int]] = {}
    for worker in plan.workers:
        if worker.address is not None:
            steps[worker.address] = steps.get(worker.address, frozenset()) | worker.cpus
    return tuple(_place(address, steps[address], plan, topology) for address in sorted(steps))


def vllm_arguments(places: Sequence[DevicePlace]) -> list[str]:
    """`--numa-bind --numa-bind-nodes N … --numa-bind-cpus LIST …`, one item per visible GPU.

    Nothing where a node is in doubt: without nodes vLLM looks them up itself, and does not start where it
    cannot, which is so for every process that may not run on all CPUs.

    Source: vLLM, Optimization and Tuning, "NUMA Binding for Multi-Socket GPU Nodes", and its
    vllm/utils/numa_utils.py: each worker starts under `numactl --physcpubind=LIST --membind=NODE`, the engine's
    core under `numactl --cpunodebind=NODES --membind=NODES`.
    """
    nodes = _nodes(places)
    if not nodes:
        return []
    lists = (format_cpu_list(place.cpus) for place in places)
    return ["--numa-bind", "--numa-bind-nodes", *nodes, "--numa-bind-cpus", *lists]


def sglang_arguments(places: Sequence[DevicePlace]) -> list[str]:
    """`--numa-node N …`, one node per GPU process; nothing where a node is in doubt.

    Source: SGLang, Server Arguments, `--numa-node`: the i-th number is the node of the i-th subprocess, which
    starts under `numactl --cpunodebind=N --membind=N` (its srt/utils/numa_utils.py).
    """
    nodes = _nodes(places)
    return ["--numa-node", *nodes] if nodes else []


def torchrun_arguments(places: Sequence[DevicePlace]) -> list[str]:
    """`--nproc-per-node=N`, with `--numa-binding=node` where no device's node is in doubt.

    Source: PyTorch, torchrun and "NUMA Binding", and torch/numa/binding.py: `node` binds a worker to the allowed
    CPUs of the node that sysfs names for its GPU (0 for -1), and ends the start where there are none.
    """
    if not places:
        return []
    arguments = [f"--nproc-per-node={len(places)}"]
    return [*arguments, "--numa-binding=node"] if _nodes(places) else arguments


def taskset_arguments(pool_cpus: frozenset[int]) -> list[str]:
    """`--cpu-list LIST`: keeps a command off the pinned CPUs. Source: taskset(1)."""
    return ["--cpu-list", format_cpu_list(pool_cpus)] if pool_cpus else []


def openmp_variables(thread_count: int, pool_cpus: frozenset[int]) -> dict[str, str]:
    """OpenMP's threads on one place that holds all pool CPUs: they float there and stay off pinned CPUs.

    A further variable names these CPUs, by which `foreign_binders` knows the places for the plan's own.

    One place, not one per CPU: several processes would each put their first threads on the first places.
    The initial thread is bound too, so a step thread has to be pinned after OpenMP has started.

    Source: OpenMP 5.2, 21.1.2 OMP_NUM_THREADS, 21.1.6 OMP_PROC_BIND, 21.1.7 OMP_PLACES.
    """
    variables = {"OMP_NUM_THREADS": str(thread_count)}
    if pool_cpus:
        variables |= {
            "OMP_PLACES": openmp_place(pool_cpus),
            "OMP_PROC_BIND": "true",
            POOL_CPUS_VARIABLE: format_cpu_list(pool_cpus),
        }
    return variables


def _nodes(places: Sequence[DevicePlace]) -> list[str]:
    """The node of each device as an argument; none at all where one is in doubt."""
    nodes = [str(place.node) for place in places if place.node is not None]
    return nodes if len(nodes) == len(places) else []


def _place(address: str, steps: frozenset[int], plan: ContainerPlan, topology: HostTopology) -> DevicePlace:
    function = topology.function(address)
    name = None if function is None else function.node
    node = next((node for node in topology.nodes if str(node.node_id) == name), None)
    doubt = None
    if function is None:
        doubt = f"sysfs has no {address}"
    elif name in (None, "-1"):
        doubt = f"the firmware names no NUMA node for {address}"
    elif node is None:
        doubt = f"sysfs has {address} on NUMA node {name} and lists no such node"
    elif not node.cpus:
        doubt = f"NUMA node {name}, where sysfs has {address}, has no CPUs"
    elif node.cpus.isdisjoint(plan.mask):
        doubt = f"the mask has no CPU of NUMA node {name}, where sysfs has {address}"
    elif plan.setting == AUTO and not steps <= node.cpus:
        doubt = f"the plan puts the step threads of {address} on {format_cpu_list(steps)}, sysfs it on NUMA node {name}"
    if function is None or node is None or doubt is not None:
        return DevicePlace(address, None, steps | plan.pool_cpus, doubt)
    near = plan.pool_cpus & (function.local or frozenset())
    return DevicePlace(address, node.node_id, steps | (near or plan.pool_cpus))


def openmp_place(cpus: frozenset[int]) -> str:
    """The CPUs as one OpenMP place, in intervals of lower bound and length: `{0:4,8}`."""
    parts = []
    for part in format_cpu_list(cpus).split(","):
        first, _, last = part.partition("-")
        parts.append(f"{first}:{int(last) - int(first) + 1}" if last else first)
    return "{" + ",".join(parts) + "}"
