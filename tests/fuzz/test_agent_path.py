"""The agent's whole way from answers and annotations to plans, on things that no kubelet and no user would send."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpuplan.agent.claims import NotAllocated
from cpuplan.agent.containers import NodeState, requests_of
from cpuplan.agent.nodefacts import NodeFacts
from cpuplan.agent.planned import DeviceResources
from cpuplan.agent.podresources import (
    AssignedDevice,
    Assignments,
    ContainerAssignment,
    PodAssignment,
    PodResourcesClient,
    PodResourcesError,
)
from cpuplan.agent.podresources_messages import LIST_METHOD
from cpuplan.kube.annotations import CONTAINER, PLAN, SETTING, WORKERS, annotations_of, next_plan
from cpuplan.kube.pods import Pod, parse_pod
from cpuplan.model.cpulist import MAX_CPU
from cpuplan.model.podplan import PodPlan
from cpuplan.planning.ledger import plan_node
from cpuplan.planning.standing import is_sound
from tests.conftest import TreeOf
from tests.fuzz.effort import fuzz
from tests.fuzz.mutation import mutated, outcome_of
from tests.fuzz.test_published_texts import PLANS
from tests.machines import gpu_uuid

MACHINE = "h100-server"
RESOURCE = "nvidia.com/gpu"
IDS = [gpu_uuid(MACHINE, "0000:1b:00.0"), gpu_uuid(MACHINE, "0000:9d:00.0"), "0000:43:00.0", "nvidia3"]
NAMES = ("engine", "", "e" * 70)

DEVICES = st.lists(st.tuples(st.sampled_from((RESOURCE, "x/y")), mutated(IDS)), max_size=3)
CPU_IDS = st.frozensets(st.sampled_from((0, 1, 2, 112, 223, 224, MAX_CPU)), max_size=4)
CONTAINER_ASSIGNMENTS = st.builds(
    ContainerAssignment,
    devices=DEVICES.map(lambda pairs: tuple(AssignedDevice(*pair) for pair in pairs)),
    cpu_ids=CPU_IDS,
)
POD_ASSIGNMENTS = st.builds(
    PodAssignment,
    cpu_ids=CPU_IDS,
    containers=st.dictionaries(st.sampled_from(NAMES), CONTAINER_ASSIGNMENTS, max_size=2),
)
ANNOTATIONS = st.fixed_dictionaries(
    {SETTING: mutated(("auto", "off", "4"))},
    optional={WORKERS: mutated(("0,0,1,-", "-,-")), CONTAINER: st.sampled_from(NAMES), PLAN: PLANS},
)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(NAMES)},
        optional={
            "resources": st.fixed_dictionaries(
                {"limits": st.dictionaries(st.sampled_from((RESOURCE, "cpu")), mutated(("1", "2", "500m")))}
            )
        },
    ),
    max_size=3,
    unique_by=lambda container: container["name"],
)


def pod_of(number: int, annotations: dict[str, str], containers: list[dict[str, Any]]) -> Pod:
    identity = {"namespace": "default", "name": f"p{number}", "uid": f"u{number}", "annotations": annotations}
    return parse_pod({"metadata": identity, "spec": {"containers": containers}})


@fuzz
@given(
    pods=st.lists(st.tuples(ANNOTATIONS, CONTAINERS), min_size=1, max_size=3),
    assigned=st.none() | st.lists(st.lists(POD_ASSIGNMENTS, max_size=2).map(tuple), min_size=3, max_size=3),
)
def test_whatever_is_asked_and_assigned_every_planned_container_gets_a_sound_plan(
    own_machine: TreeOf,
    pods: list[tuple[dict[str, str], list[dict[str, Any]]]],
    assigned: list[tuple[PodAssignment, ...]] | None,
) -> None:
    facts = NodeFacts(own_machine(MACHINE), claimed=lambda *_: NotAllocated("no claims here"))
    assignments: Assignments | None = None
    if assigned is not None:
        assignments = {("default", f"p{number}"): found for number, found in enumerate(assigned)}
    state = NodeState(facts.cpus(), facts.boot_id, assignments, DeviceResources())
    asked = [requests_of(pod_of(number, *parts), facts, state) for number, parts in enumerate(pods)]
    requests = [request for each in asked for request in each.requests]
    plans = plan_node(
        requests, facts.topology({w.address for request in requests for w in request.workers if w.address is not None})
    )
    assert plans.keys() == {request.key for request in requests}
    assert all(is_sound(plan) for plan in plans.values())
    for each in asked:
        containers = tuple((request.container, plans[request.key]) for request in each.requests)
        plan = next_plan(each.published, PodPlan(1, each.pod.uid, facts.boot_id, "n", containers))
        assert PodPlan.from_json(annotations_of(plan)[PLAN]) == plan


class NoisyKubelet:
    """A gRPC server that answers every question with the bytes it was given last."""

    def __init__(self, socket: Path) -> None:
        self.answer = b""
        self._server = grpc.server(ThreadPoolExecutor(max_workers=1), options=[("grpc.so_reuseport", 0)])
        method = grpc.unary_unary_rpc_method_handler(lambda *_: self.answer)
        service, _, name = LIST_METHOD.removeprefix("/").partition("/")
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: method}),))
        self._server.add_insecure_port(f"unix:{socket.absolute()}")
        self._server.start()

    def stop(self) -> None:
        """Ends answering."""
        self._server.stop(grace=None).wait()


Ask = Callable[[bytes], Assignments | Exception]


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    """Lets the product's client ask a kubelet that answers with these bytes."""
    socket = tmp_path / "kubelet.sock"
    kubelet, client = NoisyKubelet(socket), PodResourcesClient(socket)

    def question(content: bytes) -> Assignments | Exception:
        kubelet.answer = content
        return outcome_of(client.list_assignments, PodResourcesError)

    yield question
    client.close()
    kubelet.stop()


@fuzz
@given(content=st.binary(max_size=60))
def test_any_bytes_of_a_kubelet_are_assignments_or_an_error_of_ours(ask: Ask, content: bytes) -> None:
    answer = ask(content)
    assert isinstance(answer, dict | PodResourcesError)
