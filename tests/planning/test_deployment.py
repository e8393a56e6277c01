"""Plans of one deployment on named machines, and what each knob answers.

Machines are tests/machines; those marked `real` come from CPUPLAN_CASES. The docstrings argue the answer.
"""

from collections.abc import Callable, Sequence

import pytest

from cpuplan.host.root import HostRoot
from cpuplan.host.sysfs import read_topology
from cpuplan.model.cpulist import format_cpu_list, parse_cpu_list
from cpuplan.model.errors import CpuPlanError
from cpuplan.model.plan import CpuPlan
from cpuplan.model.topology import HostTopology
from cpuplan.planning.cores import Geometry
from cpuplan.planning.deployment import plan_deployment

TreeOf = Callable[[str], HostRoot]
Plan = Callable[..., CpuPlan]


def plan_on(
    topology: HostTopology,
    setting: object,
    addresses: Sequence[str | None],
    *,
    mask: str | None = None,
    usable: int = 16,
    is_pinnable: bool = True,
) -> CpuPlan:
    """The plan on a topology; the mask is every online CPU where none is given."""
    return plan_deployment(
        setting,
        addresses,
        mask=topology.online if mask is None else parse_cpu_list(mask),
        usable=usable,
        geometry=Geometry(topology.gpus_like(addresses), topology.siblings_of),
        is_pinnable=is_pinnable,
    )


@pytest.fixture
def plan(own_machine: TreeOf) -> Plan:
    """Plans on one of tests/machines."""

    def on(name: str, setting: object, *addresses: str | None, **options: object) -> CpuPlan:
        topology = read_topology(own_machine(name), addresses)
        return plan_on(topology, setting, addresses, **options)  # type: ignore[arg-type]

    return on


@pytest.fixture
def plan_real(machine: TreeOf) -> Plan:
    """Plans on a real machine."""

    def on(name: str, setting: object, *addresses: str | None, **options: object) -> CpuPlan:
        topology = read_topology(machine(name), addresses)
        return plan_on(topology, setting, addresses, **options)  # type: ignore[arg-type]

    return on


def pins(made: CpuPlan) -> str:
    """The workers' CPUs, a semicolon between two, and the result CPU."""
    steps = ";".join("-" if worker is None else format_cpu_list(worker.cpus) for worker in made.workers)
    return f"{steps} result {made.result}"


H100 = "h100-server"
H100_NODE_0 = ("0000:1b:00.0", "0000:43:00.0", "0000:52:00.0", "0000:61:00.0")


def test_each_gpu_of_a_node_has_its_own_lowest_and_highest_core(plan: Plan) -> None:
    """Four GPUs on node 0 (cores 0 to 55): the second takes core 1 and, from the top, core 54."""
    assert [pins(plan(H100, "auto", gpu)) for gpu in H100_NODE_0] == [
        "0,112 result 55",
        "1,113 result 54",
        "2,114 result 53",
        "3,115 result 52",
    ]


def test_a_gpu_of_the_other_socket_is_planned_there(plan: Plan) -> None:
    assert pins(plan(H100, "auto", "0000:df:00.0")) == "59,171 result 108"


def test_the_result_cpu_is_near_the_first_worker(plan: Plan) -> None:
    assert pins(plan(H100, "auto", "0000:9d:00.0", "0000:1b:00.0")) == "56,168;0,112 result 111"


def test_workers_on_one_gpu_take_its_next_steps(plan: Plan) -> None:
    """Two MIG instances report one address: the second goes `count` = 4 cores up."""
    assert pins(plan(H100, "auto", "0000:43:00.0", "0000:43:00.0", "0000:43:00.0")) == "1,113;5,117;9,121 result 54"


def test_a_deployment_on_all_gpus_has_one_core_for_each(plan: Plan) -> None:
    made = plan(H100, "auto", *H100_NODE_0, "0000:9d:00.0", "0000:c3:00.0", "0000:d1:00.0", "0000:df:00.0")
    assert pins(made) == "0,112;1,113;2,114;3,115;56,168;57,169;58,170;59,171 result 55"


def test_the_form_of_an_address_does_not_matter(plan: Plan) -> None:
    assert pins(plan(H100, "auto", "00000000:C3:00.0")) == pins(plan(H100, "auto", "0000:c3:00.0"))


def test_a_mask_of_one_socket_does_not_move_its_gpus(plan: Plan) -> None:
    made = plan(H100, "auto", "0000:52:00.0", mask="0-55,112-167")
    assert pins(made) == "2,114 result 53"


def test_a_gpu_whose_node_is_outside_the_mask_shares_what_no_node_claims(plan: Plan) -> None:
    """The mask is node 0: its four GPUs claim cores 0-3 and 52-55; the four of node 1 share 4 to 51."""
    assert pins(plan(H100, "auto", "0000:9d:00.0", mask="0-55,112-167")) == "4,116 result 51"


def test_half_of_a_core_in_the_mask_is_a_core(plan: Plan) -> None:
    assert pins(plan(H100, "auto", "0000:1b:00.0", mask="0-55")) == "0 result 55"


def test_a_pool_of_fewer_than_two_cores_per_gpu_pins_nothing(plan: Plan) -> None:
    made = plan(H100, "auto", "0000:1b:00.0", mask="0-6,112-118")
    assert (pins(made), made.reason) == (" result None", "too-few-cores")
    assert made.why == "nothing is pinned: 4 GPUs share NUMA node 0 and need 8 cores there, the mask has 7"


def test_more_workers_than_steps_pin_nothing(plan: Plan) -> None:
    made = plan(H100, "auto", *["0000:1b:00.0"] * 3, mask="0-8,112-120")
    assert (pins(made), made.reason) == (" result None", "no-core-left")
    assert made.why == (
        "nothing is pinned: no core is left in NUMA node 0 for worker 2, number 3 on GPU 0000:1b:00.0: the mask has "
        "9 cores there for 4 GPUs; the last 4 are kept for result threads; give the container more CPUs there, "
        "or run fewer workers on this GPU"
    )


@pytest.mark.parametrize(
    ("machine_name", "gpu", "expected"),
    [
        ("nps4-four-gpus", "0000:01:00.0", "48,112 result 63"),
        ("nps4-four-gpus", "0000:c1:00.0", "0,64 result 15"),
        ("gb200-tray", "0009:01:00.0", "1 result 70"),
        ("gb200-tray", "0018:01:00.0", "72 result 143"),
        ("gh200", "0009:01:00.0", "0 result 71"),
        ("mi300x-server", "0000:e5:00.0", "99,291 result 188"),
        ("mi300a-apus", "0002:01:00.0", "48,144 result 71"),
        ("power9-smt4", "0035:04:00.0", "84-87 result 152"),
        ("hybrid-laptop", "0000:01:00.0", "0-1 result 19"),
        ("worn-server", "0000:65:00.0", "8 result 15"),
    ],
)
def test_a_named_machine_has_its_argued_answer(plan: Plan, machine_name: str, gpu: str, expected: str) -> None:
    """Why each answer is right.

    nps4-four-gpus: one GPU per node, so each takes its node's first and last core; bus order is reversed.
    gb200-tray: 34 nodes, two with CPUs, two GPUs each; Grace has no SMT, so a core is one CPU.
    gh200: the GPU's memory nodes have no CPUs and change nothing.
    mi300x-server: the fourth GPU of node 1 (cores 96 to 191) takes core 3 and, from the top, core 3.
    mi300a-apus: GPU and CPUs are one package; node 2 is 48-71 with threads 144-167.
    power9-smt4: a core is four threads; the second GPU of node 8 takes 84-87, and the core 152-155 from the top.
    hybrid-laptop: a core of two threads at the bottom, an efficiency core of one at the top; the integrated GPU
    is of another vendor and does not count. Its node is unknown (-1), which is a group like any other.
    worn-server: CPU 24 is offline, so core 8 has one thread left.
    """
    assert pins(plan(machine_name, "auto", gpu)) == expected


def test_gpus_on_nodes_without_cpus_share_the_whole_host(plan: Plan) -> None:
    """No node of a GPU has a CPU, so no core is claimed and the four rank on all 144 cores by address."""
    made = [pins(plan("gb200-memory-nodes", "auto", gpu)) for gpu in ("0008:01:00.0", "0019:01:00.0")]
    assert made == ["0 result 143", "3 result 140"]


def test_eight_gpus_of_an_unknown_node_rank_on_all_cpus(plan: Plan) -> None:
    """numa_node -1 makes every CPU local; one pool for all eight is the only answer that keeps them apart."""
    made = [pins(plan("vm-without-locality", "auto", gpu)) for gpu in ("0001:00:00.0", "000c:00:00.0")]
    assert made == ["0 result 95", "7 result 88"]


def test_two_cpus_are_never_pinned_whole(plan: Plan) -> None:
    made = plan("small-vm", "auto", "0000:00:1e.0", usable=2)
    assert (pins(made), made.reason, made.left) == (" result None", "would-pin-all", 2)
    assert "pinning 0-1 would take every CPU of the mask (0-1)" in made.why


@pytest.mark.cases
@pytest.mark.parametrize(
    ("machine_name", "gpu", "expected"),
    [
        ("aws-p6e-gb200", "0000:b2:00.0", "73 result 142"),
        ("topo-gb200-nvl4", "0019:01:00.0", "73 result 142"),
        ("topo-gh200", "0009:01:00.0", "0 result 71"),
        ("mpibind-lassen-power9-4xv100", "0035:03:00.0", "96-99 result 172"),
        ("mpibind-tioga-mi250x", "0000:c6:00.0", "49,113 result 54"),
        ("topo-hgx-3131", "0000:ab:00.0", "49,145 result 70"),
        ("topo-hgx-3131", "0000:db:00.0", "72,168 result 95"),
        ("rccl-mi50-rome-1331", "0000:c6:00.0", "65 result 94"),
        ("rccl-mi100-16gpu-one-node", "0000:d6:00.0", "39,103 result 56"),
        ("rccl-mi250x-miswired", "0000:de:00.0", "3,67 result 12"),
        ("topo-4socket-interleaved4", "0000:af:00.0", "1,65 result 61"),
    ],
)
def test_a_real_machine_has_its_argued_answer(plan_real: Plan, machine_name: str, gpu: str, expected: str) -> None:
    """Why each answer is right.

    aws-p6e-gb200, topo-gb200-nvl4: the second GPU of Grace 1 (72-143); 32 memory nodes change nothing.
    topo-gh200: one GPU on one Grace; eight memory nodes change nothing.
    mpibind-lassen-power9-4xv100: CPUs 0-7 and 88-95 are the system's, so node 8 begins at 96; cores of four.
    mpibind-tioga-mi250x: node 3 has two GPUs with lists of their own L3 caches; the node's first GPU's list
    (48-55,112-119) is the pool of both, so that the second ranks 1 in it.
    topo-hgx-3131: three GPUs on a sub-NUMA node, then one alone on the next.
    rccl-mi50-rome-1331: the second of three GPUs of node 2, no SMT.
    rccl-mi100-16gpu-one-node: sixteen GPUs on a node of exactly 32 cores, two for each.
    rccl-mi250x-miswired: four GPUs are filed under node 0, right or wrong; they are kept apart there.
    topo-4socket-interleaved4: CPU c is on node c mod 4; node 1's cores are 1, 5, ..., 61 with threads 64 above.
    """
    assert pins(plan_real(machine_name, "auto", gpu)) == expected


@pytest.mark.cases
def test_a_capture_with_two_cpus_a_node_cannot_hold_eight_gpus(plan_real: Plan) -> None:
    made = plan_real("hwlocxml-nvidia-dgx2-4cpu", "auto", "0000:34:00.0")
    assert made.reason == "too-few-cores"


ANY_FORM = "expected off, auto or a CPU number such as 4"


def test_off_pins_nothing_even_where_affinity_cannot_be_set(plan: Plan) -> None:
    assert plan(H100, "off", "0000:1b:00.0", is_pinnable=False).reason == "off"


@pytest.mark.parametrize("setting", ["auto", 4, "4", "banana", None])
def test_where_affinity_cannot_be_set_nothing_is_pinned_and_said(plan: Plan, setting: object) -> None:
    made = plan(H100, setting, "0000:1b:00.0", is_pinnable=False)
    assert (made.reason, made.pinned) == ("unsupported", frozenset())
    assert made.why == "nothing is pinned: this platform cannot set CPU affinity"


@pytest.mark.parametrize(
    "setting", ["banana", "", "Auto", "OFF", " auto", "4.0", "0x4", "+4", "4 ", "1e1", "\u0664", True, False, None, 4.0]
)
def test_any_other_setting_is_an_error_that_names_the_value_and_the_forms(plan: Plan, setting: object) -> None:
    with pytest.raises(CpuPlanError) as refusal:
        plan(H100, setting, "0000:1b:00.0")
    assert (refusal.value.reason, str(refusal.value)) == (
        "invalid-setting",
        f"step_thread_core is {setting!r}: {ANY_FORM}",
    )


@pytest.mark.parametrize("setting", [-1, "-1", 224, "224", 10**30, "9" * 40])
def test_a_number_outside_the_mask_is_an_error_that_names_the_mask(plan: Plan, setting: object) -> None:
    with pytest.raises(CpuPlanError) as refusal:
        plan(H100, setting, "0000:1b:00.0")
    assert refusal.value.reason == "outside-mask"
    assert f"CPU {setting} is outside the mask (0-223)" in str(refusal.value)


@pytest.mark.parametrize(
    ("setting", "workers", "expected"),
    [
        (4, 0, " result 111"),
        ("4", 0, " result 111"),
        (4, 2, "4,116;5,117 result 111"),
        (116, 2, "4,116;5,117 result 111"),
        (109, 2, "109,221;110,222 result 111"),
    ],
)
def test_a_number_takes_its_core_and_those_above_it(plan: Plan, setting: object, workers: int, expected: str) -> None:
    assert pins(plan(H100, setting, *[None] * workers)) == expected


def test_too_few_cores_above_a_number_are_an_error_with_both_numbers(plan: Plan) -> None:
    with pytest.raises(CpuPlanError) as refusal:
        plan(H100, 110, None, None)
    assert refusal.value.reason == "too-few-cores-above"
    assert str(refusal.value) == (
        "step_thread_core 110: 2 workers need a core each, 1 is free from CPU 110 up (110,222): the last free "
        "core (111,223) is kept for the result threads; choose a lower CPU, or auto"
    )


def test_the_last_core_is_said_to_be_the_result_threads(plan: Plan) -> None:
    with pytest.raises(CpuPlanError) as refusal:
        plan(H100, 31, "0000:1b:00.0", mask="0-31")
    assert str(refusal.value) == (
        "step_thread_core 31: 1 worker needs a core, none is free from CPU 31 up: the last free core (31) is kept "
        "for the result threads; choose a lower CPU, or auto"
    )


def test_a_number_that_would_pin_the_whole_mask_is_an_error(plan: Plan) -> None:
    with pytest.raises(CpuPlanError, match="would take every CPU of the mask") as refusal:
        plan("small-vm", 0, None)
    assert refusal.value.reason == "would-pin-all"


def test_the_only_cpu_of_a_mask_is_never_pinned(plan: Plan) -> None:
    with pytest.raises(CpuPlanError, match="would take every CPU of the mask"):
        plan("small-vm", 1, mask="1")


@pytest.mark.parametrize(
    ("addresses", "mask", "why"),
    [
        ([], None, "nothing is pinned: the deployment has no worker"),
        (["0000:1b:00.0"], "", "nothing is pinned: the mask has no CPU"),
    ],
)
def test_without_a_worker_or_a_cpu_there_is_nothing_to_place(
    plan: Plan, addresses: list[str], mask: str | None, why: str
) -> None:
    made = plan(H100, "auto", *addresses, mask=mask)
    assert (made.reason, made.why) == ("nothing-to-place", why)


def test_workers_without_a_gpu_are_told_how_many_cores_they_need(plan: Plan) -> None:
    assert plan(H100, "auto", None, None, mask="0-1").why == (
        "nothing is pinned: no core is left for worker 1: 2 workers and the result threads need a core each, "
        "the mask has 2; give the container more CPUs, or run fewer workers"
    )
    assert plan(H100, "auto", None, mask="0").why == (
        "nothing is pinned: a worker and the result threads need a core each, the mask has 1; "
        "give the container more CPUs"
    )


def test_a_worker_without_a_gpu_is_not_called_one(plan: Plan) -> None:
    made = plan(H100, "auto", None, "0000:ff:00.0", mask="0-7")
    assert [worker.why for worker in made.workers if worker] == [
        "core 0 of the whole mask for a worker without a GPU",
        "core 1 of the whole mask for GPU 0000:ff:00.0, which is none of this host's of that kind",
    ]


@pytest.mark.parametrize("address", [None, "0000:ff:00.0", "0000:03:00.0", "banana"])
def test_a_worker_without_a_gpu_of_the_kind_uses_the_whole_mask(plan: Plan, address: str | None) -> None:
    made = plan(H100, "auto", "0000:1b:00.0", address)
    assert pins(made) == "0,112;1,113 result 55"


ASYMMETRIC = HostTopology(
    online=frozenset(range(8)),
    siblings={cpu: frozenset({cpu}) for cpu in range(8)} | {0: frozenset({0, 4})},
)


def test_asymmetric_sibling_lists_never_give_one_cpu_to_two() -> None:
    """CPU 0 claims 4 as its sibling, 4 knows nothing of it: core 0,4 and core 4 are never both taken."""
    made = plan_on(ASYMMETRIC, 0, [None] * 5)
    assert pins(made) == "0,4;1;2;3;5 result 7"


def test_a_number_counts_from_its_own_core_although_another_core_lists_it() -> None:
    made = plan_on(ASYMMETRIC, 4, [None, None])
    assert pins(made) == "4;5 result 7"


def test_two_orders_of_reading_make_one_plan(plan: Plan) -> None:
    assert plan(H100, "auto", *H100_NODE_0) == plan(H100, "auto", *H100_NODE_0)
