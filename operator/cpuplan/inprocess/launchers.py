"""A plan in the words of other programs: arguments of vLLM, SGLang, torchrun and taskset, variables of OpenMP.

Each function names the document that fixes the options. Arguments that a plan cannot fill are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..model.cpulist import format_cpu_list
from ..model.topology import HostGpu


@dataclass(frozen=True, slots=True)
class DevicePlace:
    """One device of the deployment, in the order in which the GPU runtime counts them.

    Attributes:
        address: its PCI address.
        node: its NUMA node, None where it is unknown.
        cpus: where its workers should run: their step CPUs, and the pool CPUs near the device.
    """

    address: str
    node: int | None
    cpus: frozenset[int]


def device_places(
    workers: Iterable[tuple[str | None, frozenset[int]]], pool_cpus: frozenset[int], gpus: Mapping[str, HostGpu]
) -> tuple[DevicePlace, ...]:
    """The devices of the workers (address and step CPUs), by address.

    That is CUDA_DEVICE_ORDER=PCI_BUS_ID, and the default order too where all devices are of one model.
    A device whose local CPUs are unknown, or hold no pool CPU, has all pool CPUs.
    """
    steps: dict[str, frozenset[int]] = {}
    for address, cpus in workers:
        if address is not None:
            steps[address] = steps.get(address, frozenset()) | cpus
    return tuple(_place(address, steps[address], pool_cpus, gpus.get(address)) for address in sorted(steps))


def vllm_arguments(places: Sequence[DevicePlace]) -> list[str]:
    """`--numa-bind --numa-bind-nodes N … --numa-bind-cpus LIST …`, one item per visible GPU.

    Source: vLLM, Optimization and Tuning, "NUMA Binding for Multi-Socket GPU Nodes": vLLM starts each worker
    under `numactl --physcpubind=LIST --membind=NODE`; without nodes it looks them up itself.
    """
    if not places:
        return []
    arguments = ["--numa-bind"]
    nodes = [place.node for place in places]
    if None not in nodes:
        arguments += ["--numa-bind-nodes", *map(str, nodes)]
    return [*arguments, "--numa-bind-cpus", *(format_cpu_list(place.cpus) for place in places)]


def sglang_arguments(places: Sequence[DevicePlace]) -> list[str]:
    """`--numa-node N …`, one node per GPU process; nothing where a node is unknown.

    Source: SGLang, Server Arguments, `--numa-node`: the i-th number is the node of the i-th subprocess.
    """
    nodes = [place.node for place in places]
    return [] if not nodes or None in nodes else ["--numa-node", *map(str, nodes)]


def torchrun_arguments(places: Sequence[DevicePlace]) -> list[str]:
    """`--nproc-per-node=N`, with `--numa-binding=node` where every device's node is known.

    Source: PyTorch, torchrun and "NUMA Binding": `node` binds a worker to the allowed CPUs of its GPU's node.
    """
    if not places:
        return []
    arguments = [f"--nproc-per-node={len(places)}"]
    return arguments if None in [place.node for place in places] else [*arguments, "--numa-binding=node"]


def taskset_arguments(pool_cpus: frozenset[int]) -> list[str]:
    """`--cpu-list LIST`: keeps a command off the pinned CPUs. Source: taskset(1)."""
    return ["--cpu-list", format_cpu_list(pool_cpus)] if pool_cpus else []


def openmp_variables(thread_count: int, pool_cpus: frozenset[int]) -> dict[str, str]:
    """OpenMP's threads on one place that holds all pool CPUs: they float there and stay off pinned CPUs.

    One place, not one per CPU: several processes would each put their first threads on the first places.
    The initial thread is bound too, so a step thread has to be pinned after OpenMP has started.

    Source: OpenMP 5.2, 21.1.2 OMP_NUM_THREADS, 21.1.6 OMP_PROC_BIND, 21.1.7 OMP_PLACES.
    """
    variables = {"OMP_NUM_THREADS": str(thread_count)}
    if pool_cpus:
        variables |= {"OMP_PLACES": "{" + _intervals(pool_cpus) + "}", "OMP_PROC_BIND": "true"}
    return variables


def _place(address: str, steps: frozenset[int], pool_cpus: frozenset[int], gpu: HostGpu | None) -> DevicePlace:
    if gpu is None:
        return DevicePlace(address, None, steps | pool_cpus)
    node = int(gpu.node) if gpu.node is not None and gpu.node.isdecimal() else None
    return DevicePlace(address, node, steps | (pool_cpus & (gpu.local or frozenset()) or pool_cpus))


def _intervals(cpus: frozenset[int]) -> str:
    """The CPUs in OpenMP's interval notation: lower bound and length, `0:4,8`."""
    parts = []
    for part in format_cpu_list(cpus).split(","):
        first, _, last = part.partition("-")
        parts.append(f"{first}:{int(last) - int(first) + 1}" if last else first)
    return ",".join(parts)
