"""Random histories of a node: deployments come, change and go, CPUs go offline and come back, an administrator says
where GPUs are, the agent restarts, the node boots.

`Node.step` does one random thing and plans the node, as the agent does: the only memory is the plans that were
published. `violations` (ledger_invariants.py) judges every round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from cpuplan.model.podplan import ContainerPlan
from cpuplan.model.reasons import WAITING_FOR_DEVICES
from cpuplan.model.request import DeploymentRequest, PodRef, Refusal, WorkerDevice
from cpuplan.model.topology import GpuPlacement, HostTopology, NumaNode, PciFunction
from cpuplan.model.withheld import Withheld, WithheldFor
from cpuplan.planning.ledger import Key, NodeRules, plan_node
from cpuplan.planning.override import override_topology
from cpuplan.planning.plannable import plannable_cpus

PlanNode = Callable[[Iterable[DeploymentRequest], HostTopology, NodeRules], dict[Key, ContainerPlan]]


@dataclass(frozen=True, slots=True)
class Shape:
    """A small node: cores and GPUs per NUMA node, threads per core, and what its firmware gets wrong."""

    name: str
    nodes: int
    cores: int
    threads: int
    gpus: int
    is_local_known: bool = True
    is_asymmetric: bool = False
    are_gpus_on_nodes_of_their_own: bool = False
    isolated: frozenset[int] = frozenset()


SHAPES = (
    Shape("two nodes with SMT", nodes=2, cores=6, threads=2, gpus=2),
    Shape("one node without SMT", nodes=1, cores=9, threads=1, gpus=2),
    Shape("four nodes, a GPU each", nodes=4, cores=3, threads=2, gpus=1),
    Shape("two CPUs", nodes=1, cores=2, threads=1, gpus=1),
    Shape("unknown nodes", nodes=2, cores=5, threads=2, gpus=2, is_local_known=False),
    Shape("contradictory siblings", nodes=2, cores=5, threads=2, gpus=1, is_asymmetric=True),
    Shape("GPUs on nodes without CPUs", nodes=2, cores=5, threads=1, gpus=2, are_gpus_on_nodes_of_their_own=True),
    Shape("isolated CPUs", nodes=2, cores=6, threads=2, gpus=1, isolated=frozenset({0, 1, 12, 13})),
)


def topology_of(shape: Shape) -> HostTopology:
    """The topology of a shape; threads are numbered in halves, as on most servers."""
    cores = shape.nodes * shape.cores
    siblings = {
        cpu: frozenset(range(cpu % cores, cores * shape.threads, cores)) for cpu in range(cores * shape.threads)
    }
    if shape.is_asymmetric:
        siblings |= {1: frozenset({1}), 3: frozenset({3, 4}), 0: frozenset({0, 5})}
    local = [frozenset(c for c in siblings if c % cores // shape.cores == node) for node in range(shape.nodes)]
    if shape.are_gpus_on_nodes_of_their_own:
        local += [frozenset()] * (shape.nodes * shape.gpus)
    functions = []
    for index in range(shape.nodes * shape.gpus):
        node = shape.nodes + index if shape.are_gpus_on_nodes_of_their_own else index // shape.gpus
        number, cpus = (str(node), local[node]) if shape.is_local_known else ("-1", None)
        functions.append(PciFunction(f"0000:{index + 1:02x}:00.0", "0x10de", "0x030200", number, cpus))
    nodes = tuple(NumaNode(node, cpus) for node, cpus in enumerate(local))
    return HostTopology(frozenset(siblings), siblings, tuple(functions), nodes, shape.isolated)


def without_cpus(topology: HostTopology, offline: frozenset[int]) -> HostTopology:
    """The topology as the kernel tells it while these CPUs are offline: they are in no list."""
    return replace(
        topology,
        online=topology.online - offline,
        siblings={cpu: cpus - offline for cpu, cpus in topology.siblings.items() if cpu not in offline},
        functions=tuple(f if f.local is None else replace(f, local=f.local - offline) for f in topology.functions),
        nodes=tuple(replace(node, cpus=node.cpus - offline) for node in topology.nodes),
    )


TOPOLOGIES = {shape.name: topology_of(shape) for shape in SHAPES}

WAITING = Refusal(WAITING_FOR_DEVICES, "the kubelet does not answer")


@dataclass(frozen=True, slots=True)
class Round:
    """One planning of the node: what was asked, what came out, and what had been published before."""

    topology: HostTopology
    rules: NodeRules
    requests: tuple[DeploymentRequest, ...]
    before: Mapping[Key, DeploymentRequest]
    plans: Mapping[Key, ContainerPlan]


@dataclass
class Node:
    """A node and its deployments; `published` is what stands on the pods.

    `whole` is the topology with all CPUs online, `granted` the deployments' CPUs before any is left out.
    """

    random: Random
    whole: HostTopology
    rules: NodeRules
    offline: frozenset[int] = frozenset()
    granted: dict[Key, frozenset[int]] = field(default_factory=dict)
    deployments: dict[Key, DeploymentRequest] = field(default_factory=dict)
    before: dict[Key, DeploymentRequest] = field(default_factory=dict)
    published: dict[Key, ContainerPlan] = field(default_factory=dict)
    count: int = 0

    def step(self, plan: PlanNode = plan_node) -> Round:
        """One random event, then the plans of the node."""
        self.before = dict(self.deployments)
        self.random.choice(self._events())()
        topology = self.topology
        for key, request in self.deployments.items():
            self.deployments[key] = self._with_mask(request, topology)
        requests = [replace(request, previous=self.published.get(key)) for key, request in self.deployments.items()]
        self.random.shuffle(requests)
        plans = plan(requests, topology, self.rules)
        self.published = dict(plans)
        return Round(topology, self.rules, tuple(requests), self.before, plans)

    @property
    def topology(self) -> HostTopology:
        """The topology now."""
        return without_cpus(self.whole, self.offline)

    def _with_mask(self, request: DeploymentRequest, topology: HostTopology) -> DeploymentRequest:
        """As the agent asks: on the CPUs of its grant that are online and not isolated."""
        granted = self.granted[request.key]
        mask = plannable_cpus(granted, online=topology.online, isolated=topology.isolated)
        isolated = granted & topology.online - mask
        return replace(request, mask=mask, withheld=(Withheld(WithheldFor.ISOLATED, isolated),) if isolated else ())

    def _events(self) -> list[Callable[[], None]]:
        arrivals = [self._arrive, self._arrive] if len(self.deployments) < 7 else []
        others = [self._leave, self._change, self._resize, self._lose_devices, self._boot, self._corrupt]
        return [*arrivals, self._hotplug, self._override, *(others if self.deployments else [])]

    def _arrive(self) -> None:
        self.count += 1
        created = f"2026-01-01T00:00:{self.random.randrange(4):02}Z"
        pod = PodRef("default", f"pod-{self.count}", f"uid-{self.random.randrange(1000):03}-{self.count}", created)
        for position in range(self.random.choice([1, 1, 1, 2])):
            request = DeploymentRequest(pod, f"c{position}", position, "auto", (), (), frozenset(), None)
            self.granted[request.key] = self._grant()
            self.deployments[request.key] = self._with_wishes(request)

    def _with_wishes(self, request: DeploymentRequest) -> DeploymentRequest:
        gpus = [function.address for function in self.topology.functions]
        own = self.random.sample(gpus, self.random.randrange(1, min(3, len(gpus)) + 1))
        workers = [self.random.choice([*own, *own, None]) for _ in range(self.random.choice([0, 1, 1, 2, 3]))]
        return replace(
            request,
            setting=self.random.choice(["auto"] * 5 + ["off", "banana", str(self.random.randrange(-1, 14))]),
            workers=tuple(WorkerDevice(address) for address in workers),
            devices=tuple(sorted({f"GPU-{address}" for address in workers if address})),
            quota=self.random.choice([None, 0.5, 2.0, 3.5]),
        )

    def _grant(self) -> frozenset[int]:
        everything = sorted(self.whole.online)
        part = frozenset(self.random.sample(everything, self.random.randrange(1, len(everything) + 1)))
        node = self.random.choice([node.cpus for node in self.whole.nodes if node.cpus])
        return self.random.choice([self.whole.online, self.whole.online, node, part])

    def _any(self) -> Key:
        return self.random.choice(sorted(self.deployments))

    def _leave(self) -> None:
        uid = self._any()[0]
        self.deployments = {key: request for key, request in self.deployments.items() if key[0] != uid}

    def _change(self) -> None:
        key = self._any()
        self.deployments[key] = self._with_wishes(replace(self.deployments[key], refusal=None))

    def _resize(self) -> None:
        key = self._any()
        self.granted[key] = self.random.choice([self._grant(), self.granted[key]])
        self.deployments[key] = replace(self.deployments[key], quota=self.random.choice([None, 1.0, 4.0]))

    def _hotplug(self) -> None:
        """One more CPU goes offline, or all come back; CPU 0 stays, and another one with it."""
        going = frozenset(self.random.sample(sorted(self.whole.online - {0}), 1))
        self.offline = self.random.choice([frozenset(), self.offline | going, self.offline | going])
        if len(self.whole.online - self.offline) == 1:
            self.offline = going

    def _override(self) -> None:
        """An administrator says that one GPU is near another node's CPUs; pods planned before stay where they are."""
        address = self.random.choice(self.whole.functions).address
        node = self.random.choice(self.whole.nodes).node_id
        self.whole = override_topology(self.whole, (GpuPlacement(address, node),)).topology

    def _lose_devices(self) -> None:
        key = self._any()
        refusal = None if self.deployments[key].refusal else WAITING
        self.deployments[key] = replace(self.deployments[key], refusal=refusal)

    def _boot(self) -> None:
        """No plan of the last boot is valid any more."""
        self.published = {}

    def _corrupt(self) -> None:
        """A pod carries a plan that no ledger made: foreign pins, doubled pins, or pins without a reason."""
        key = self._any()
        if key not in self.published:
            return
        cpus = frozenset(self.random.sample(sorted(self.topology.online), 1))
        plan = self.published[key]
        worker = tuple(replace(worker, cpus=cpus) for worker in plan.workers)
        bad = self.random.choice(
            [
                replace(plan, workers=worker),
                replace(plan, result=min(cpus)),
                replace(plan, reason="pinned"),
                replace(plan, reason="banana"),
                replace(plan, setting="off"),
                replace(plan, mask=cpus),
                replace(plan, workers=worker, result=min(cpus), reason="pinned"),
                replace(plan, workers=(), result=min(cpus), reason="pinned"),
            ]
        )
        self.published[key] = bad
        self.before.pop(key)


def random_node(seed: int) -> Node:
    """An empty node of a random shape; one seed always makes one history."""
    random = Random(seed)  # noqa: S311 - no secret
    most = random.choice([None, None, None, 2, 4])
    return Node(random, TOPOLOGIES[random.choice(SHAPES).name], NodeRules(most_pinned_per_pod=most))
