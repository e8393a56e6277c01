"""Planning on a 384-CPU, 8-GPU host: one deployment, and a node of 64."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from cpuplan.host.sysfs import read_topology
from cpuplan.model.request import DeploymentRequest, PodRef, WorkerDevice
from cpuplan.model.topology import HostTopology
from cpuplan.planning.cores import Geometry
from cpuplan.planning.deployment import plan_deployment
from cpuplan.planning.ledger import plan_node
from tests.machines import describe, write_machine

from .reading import MACHINE
from .timing import Figure, best_ms

DEPLOYMENTS = 64


def figures() -> list[Figure]:
    """The cost of a plan and of a node's plans: all new, all kept, and all on masks of their own."""
    with TemporaryDirectory() as folder:
        topology = read_topology(write_machine(MACHINE, Path(folder)))
    gpus = describe(MACHINE).gpu_addresses
    new = [_request(number, [gpus[number % len(gpus)]], topology.online) for number in range(DEPLOYMENTS)]
    plans = plan_node(new, topology)
    kept = [replace(request, previous=plans[request.key]) for request in new]
    own_masks = [replace(request, mask=request.mask - {number}) for number, request in enumerate(new)]
    whole = _request(0, list(gpus), topology.online)
    return [
        Figure("one deployment on 8 GPUs, planned", best_ms(lambda: _plan_alone(topology, gpus)), "ms", 2),
        Figure("one deployment on 8 GPUs, by the ledger", best_ms(lambda: plan_node([whole], topology)), "ms", 2),
        Figure(f"{DEPLOYMENTS} deployments, all new", best_ms(lambda: plan_node(new, topology)), "ms", 20),
        Figure(f"{DEPLOYMENTS} deployments, all kept", best_ms(lambda: plan_node(kept, topology)), "ms", 20),
        Figure(
            f"{DEPLOYMENTS} deployments, {DEPLOYMENTS} masks of 383 CPUs",
            best_ms(lambda: plan_node(own_masks, topology), 10),
            "ms",
            20,
        ),
    ]


def _plan_alone(topology: HostTopology, gpus: tuple[str, ...]) -> None:
    geometry = Geometry(topology.gpus_like(gpus), topology.siblings_of)
    plan_deployment("auto", gpus, mask=topology.online, usable=16, geometry=geometry)


def _request(number: int, gpus: list[str], mask: frozenset[int]) -> DeploymentRequest:
    return DeploymentRequest(
        pod=PodRef("default", f"llm-{number}", f"uid-{number:03}", f"2026-01-01T00:00:{number:02}Z"),
        container="engine",
        position=0,
        setting="auto",
        workers=tuple(WorkerDevice(gpu) for gpu in gpus),
        devices=tuple(gpus),
        mask=mask,
        quota=16.0,
    )
