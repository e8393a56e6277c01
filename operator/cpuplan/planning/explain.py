"""A plan as sentences: where each CPU comes from, which candidates were passed over, and why.

The sentences follow the steps of planning/deployment.py. They are made from the plan as it stands: a plan on a
pod may be older than its neighbours, and a candidate that was held then may be free now; that is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..model import reasons
from ..model.cpulist import format_cpu_list
from ..model.source import Source
from ..model.topology import Core, HostGpu, HostTopology
from .budget import counted
from .confidence import judge_topology
from .cores import Geometry, Place, has_taken
from .deployment import worker_sentence
from .explanation import (
    NODE_FOLDER,
    NOTHING,
    PCI_FOLDER,
    Decision,
    Sentence,
    Topic,
    holders_of,
    local_source,
    number_source,
    siblings_source,
)
from .setting import AUTO, OFF

__all__ = ["Decision", "Sentence", "Source", "Topic", "explain", "holders_of"]

NOBODY: Mapping[int, str] = {}


def explain(
    decision: Decision,
    topology: HostTopology,
    *,
    holders: Mapping[int, str] = NOBODY,
    placed_by: Mapping[str, str] = NOTHING,
    with_rejected: bool = True,
) -> tuple[Sentence, ...]:
    """The reasons of a decision, in the order of Topic.

    Args:
        decision: the plan to explain.
        topology: the host's, overrides applied.
        holders: which neighbour holds a CPU now (`holders_of`).
        placed_by: by GPU address, the file of the administrator's override that placed it.
        with_rejected: what was passed over is told too; whoever has the `Candidates` needs no second search.
    """
    explained = _Explained(decision, topology, holders, placed_by)
    return (
        *explained.inputs(),
        *explained.trust(),
        *explained.pools(),
        *explained.taken(),
        *(explained.rejected() if with_rejected else ()),
        Sentence(Topic.OUTCOME, f"{decision.reason}: {decision.why}"),
    )


class _Explained:
    """One decision beside the topology that it was made from."""

    def __init__(
        self,
        decision: Decision,
        topology: HostTopology,
        holders: Mapping[int, str],
        placed_by: Mapping[str, str],
    ) -> None:
        self._decision = decision
        self._topology = topology
        self._holders = holders
        self._placed_by = placed_by
        self._gpus = topology.gpus_like(decision.addresses)
        self._geometry = Geometry(self._gpus, topology.siblings_of)
        self._places = [self._geometry.place(address, decision.mask) for address in decision.addresses]
        self._misfit = self._find_misfit()

    def inputs(self) -> Iterator[Sentence]:
        decision = self._decision
        quota = "no CPU quota" if decision.quota is None else f"a quota of {counted(decision.quota, 'CPU')}"
        yield Sentence(
            Topic.INPUT,
            f"step_thread_core is {decision.setting}; the mask has {counted(len(decision.mask), 'CPU')} "
            f"({format_cpu_list(decision.mask) or 'none'}), with {quota} {decision.usable} can run at once",
        )
        for address in dict.fromkeys(decision.addresses):
            if address is not None and self._topology.function(address) is None:
                text = f"the host has no device {address}: its worker is planned on the whole mask"
                yield Sentence(Topic.INPUT, text, (Source(f"{PCI_FOLDER}/{address}/vendor", None),))

    def trust(self) -> Iterator[Sentence]:
        confidence = judge_topology(self._topology, self._gpus, placed_by=self._placed_by)
        yield Sentence(Topic.TOPOLOGY, f"what the host says of itself is {confidence.level}")
        for finding in confidence.findings:
            yield Sentence(Topic.TOPOLOGY, f"{finding.test}: {finding.sentence}", finding.sources)
        for address in sorted({gpu.address for gpu in self._own_gpus() if not gpu.local}):
            yield self._nearest_node(next(gpu for gpu in self._gpus if gpu.address == address))

    def pools(self) -> Iterator[Sentence]:
        if self._decision.setting != AUTO:
            return
        seen: set[Place] = set()
        for address, place in zip(self._decision.addresses, self._places, strict=True):
            whole = Place(place.cores, 0, place.count, place.name)
            if whole not in seen:
                seen.add(whole)
                yield self._pool_sentence(address, place)

    def taken(self) -> Iterator[Sentence]:
        decision = self._decision
        for index, cpus in enumerate(decision.steps):
            core = tuple(sorted(cpus))
            if core:
                yield Sentence(Topic.TAKEN, self._step_text(index, core), self._core_sources(core))
        if decision.result is not None:
            core = self._geometry.core(decision.result, decision.mask)
            text = f"result threads take CPU {decision.result}, the first of core {format_cpu_list(core)}: "
            yield Sentence(Topic.TAKEN, text + self._result_text(core), self._core_sources(core))

    def rejected(self) -> Iterator[Sentence]:
        """The candidates that were passed over, before each core that was taken or to the end of the search."""
        if self._decision.setting == OFF or not self._decision.mask:
            return
        if self._misfit is not None:
            yield self._misfit
        elif self._decision.setting == AUTO:
            yield from self._rejected_results()
            for index in range(len(self._places)):
                yield from self._rejected_steps(index)
        elif self._decision.setting.isdecimal() and int(self._decision.setting) in self._decision.mask:
            yield from self._rejected_above()

    def _find_misfit(self) -> Sentence | None:
        """Says that `auto` was answered for another picture of the host; None where the search can be told again.

        The sentence that each worker was given names its core, pool and turn: here it would be another one.
        """
        decision = self._decision
        if decision.setting != AUTO:
            return None
        told = zip(decision.addresses, self._places, decision.steps, decision.step_whys, strict=False)
        for index, (address, place, cpus, why) in enumerate(told):
            here = worker_sentence(tuple(sorted(cpus)), address, place)
            if why and why != here:
                return Sentence(
                    Topic.REJECTED,
                    f'what was passed over is left out: the plan was made for "{why}" (worker {index}), by these files '
                    f'it would be "{here}". A topology override, a change of the host or another version of cpuplan '
                    "makes that difference; the agent knows (cpuplan explain POD), or give --topology-override",
                )
        return None

    def _own_gpus(self) -> list[HostGpu]:
        return [gpu for gpu in self._gpus if gpu.address in self._decision.addresses]

    def _nearest_node(self, gpu: HostGpu) -> Sentence:
        """Where a GPU would best be put whose NUMA node has no CPUs."""
        node = next((node for node in self._topology.nodes if str(node.node_id) == gpu.node), None)
        sources = [number_source(gpu, self._placed_by)]
        text = f"no CPU is local to GPU {gpu.address}: it shares the CPUs that no GPU's NUMA node claims"
        with_cpus = {other.node_id for other in self._topology.nodes if other.cpus}
        numbers = [other.node_id for other in self._topology.nodes]
        if node is not None and len(node.distances) == len(numbers):
            sources.append(Source(f"{NODE_FOLDER}/node{node.node_id}/distance", " ".join(map(str, node.distances))))
            near, distance = min(
                ((n, d) for n, d in zip(numbers, node.distances, strict=True) if n in with_cpus),
                key=lambda pair: (pair[1], pair[0]),
            )
            text += (
                f"; the nearest node with CPUs is {near} (distance {distance}), where agent.topologyOverride can put it"
            )
        return Sentence(Topic.TOPOLOGY, text, tuple(sources))

    def _pool_sentence(self, address: str | None, place: Place) -> Sentence:
        is_shared, claimed, needed = place.count > 1, "", ""
        if not place.is_large_enough:
            needed = f", fewer than the {2 * place.count} that {'they need' if is_shared else 'it needs'}"
        else:
            ends = f"{place.count} are claimed for them" if is_shared else "are claimed for it"
            claimed = f"; the lowest and the highest {ends}"
        who = f"{place.count} GPUs share" if is_shared else "one GPU has"
        if not self._is_gpu(address):
            who, claimed = "a worker without a known GPU has", ""
        cpus = format_cpu_list(cpu for core in place.cores for cpu in core)
        text = (
            f"{who} {place.name}: {counted(len(place.cores), 'core')} of the mask ({cpus or 'none'}){needed}{claimed}"
        )
        first = next((gpu for gpu in self._gpus if gpu.address == address), None)
        if first is None:
            return Sentence(Topic.POOL, text)
        sources = (number_source(first, self._placed_by), local_source(first, self._placed_by))
        return Sentence(Topic.POOL, text, sources)

    def _step_text(self, index: int, core: Core) -> str:
        decision = self._decision
        start = f"worker {index} takes core {format_cpu_list(core)}: "
        if decision.setting != AUTO:
            return f"{start}the next free core from CPU {decision.setting} up"
        if self._misfit is not None:
            return f"worker {index} takes {decision.step_whys[index]}"
        place = self._places[index]
        where = f"core {_position(core, place)} of {place.name}, counted from 0"
        if not self._is_gpu(decision.addresses[index]):
            return f"{start}{where}"
        return (
            f"{start}{where}; GPU {decision.addresses[index]} is GPU {place.rank + 1} of {place.count} there and "
            f"may take every core {place.rank} + k x {place.count}"
        )

    def _result_text(self, core: Core) -> str:
        if self._decision.setting != AUTO or not self._places:
            return "the last free core of the mask"
        if self._misfit is not None:
            return "for the first worker's GPU"
        place = self._places[0]
        from_top = len(place.cores) - 1 - _position(core, place)
        return f"core {from_top} of {place.name}, counted from the top, for the first worker's GPU"

    def _rejected_results(self) -> Iterator[Sentence]:
        if not self._places:
            return
        place = self._places[0]
        for position in range(len(place.cores) - 1 - place.rank, place.count - 1, -place.count):
            core = place.cores[position]
            if self._decision.result in core:
                return
            yield from self._passed_over("result threads", core)

    def _rejected_steps(self, index: int) -> Iterator[Sentence]:
        """The worker's steps below its core, and the cores between the last of them and its core."""
        place, decision = self._places[index], self._decision
        own = decision.steps[index] if index < len(decision.steps) else frozenset()
        mine = {cpu: f"worker {i}" for i, cpus in enumerate(decision.steps[:index]) for cpu in cpus}
        if decision.result is not None:
            mine |= dict.fromkeys(self._geometry.core(decision.result, decision.mask), "the result threads")
        end = len(place.cores) - place.count
        position = next((p for p in range(end) if not own.isdisjoint(place.cores[p])), end)
        ladder = range(place.rank, end, place.count)
        steps = range(place.rank, position, place.count)
        has_left_it = steps and own and position not in ladder
        between = range(steps[-1] + 1, position) if has_left_it else range(0)
        earlier = decision.addresses[:index].count(decision.addresses[index])
        for candidate in (*steps[earlier:], *between) if own else steps:
            yield from self._passed_over(f"worker {index}", place.cores[candidate], mine)

    def _rejected_above(self) -> Iterator[Sentence]:
        """The cores from the setting's CPU up that are not the workers', to the last one that is."""
        decision = self._decision
        cores = self._geometry.cores(decision.mask)
        pinned = frozenset(cpu for cpus in decision.steps for cpu in cpus)
        first = cores.index(self._geometry.core(int(decision.setting), decision.mask))
        last = max((index for index, core in enumerate(cores) if has_taken(core, pinned)), default=len(cores) - 1)
        for core in cores[first : last + 1] if decision.addresses else ():
            if not has_taken(core, pinned):
                yield from self._passed_over("the workers", core)
        result = next((index for index, core in enumerate(cores) if decision.result in core), len(cores))
        for core in cores[result + 1 :]:
            yield from self._passed_over("result threads", core)

    def _passed_over(self, who: str, core: Core, mine: Mapping[int, str] = NOBODY) -> Iterator[Sentence]:
        """Why a candidate is not taken; nothing for one that a plan without pins left free."""
        holder = next((mine[cpu] for cpu in core if cpu in mine), None)
        holder = holder or next((self._holders[cpu] for cpu in core if cpu in self._holders), None)
        name = format_cpu_list(core)
        if holder is not None:
            yield Sentence(Topic.REJECTED, f"{who}: core {name} is held by {holder}", self._core_sources(core))
        elif self._decision.reason == reasons.PINNED:
            text = f"{who}: core {name} is free now, it was held when this plan was made; pins do not move"
            yield Sentence(Topic.REJECTED, text, self._core_sources(core))

    def _is_gpu(self, address: str | None) -> bool:
        return any(gpu.address == address for gpu in self._gpus)

    def _core_sources(self, core: Core) -> tuple[Source, ...]:
        """The sibling list of the core's first CPU."""
        return (siblings_source(self._topology, core[0]),) if core else ()


def _position(core: Core, place: Place) -> int:
    """The core's place in the pool; where the pool has changed since, that of the core that has its CPUs."""
    return next((index for index, other in enumerate(place.cores) if has_taken(other, core)), -1)
