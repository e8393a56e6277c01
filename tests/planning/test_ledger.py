"""A node's ledger by example, on the H100 server: node 0 has GPUs 1b, 43, 52, 61 and cores 0 to 55."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from cpuplan.host.root import HostRoot
from cpuplan.host.sysfs import read_topology
from cpuplan.model.cpulist import format_cpu_list, parse_cpu_list
from cpuplan.model.podplan import ContainerPlan, Status
from cpuplan.model.request import DeploymentRequest, PodRef, Refusal, WorkerDevice
from cpuplan.model.topology import GpuPlacement, HostTopology
from cpuplan.model.withheld import Withheld, WithheldFor
from cpuplan.planning.ledger import ASK_AGAIN, Key, NodeRules, plan_node
from cpuplan.planning.override import override_topology

GPU_A, GPU_B = "0000:1b:00.0", "0000:43:00.0"
ALL = "0-223"


@pytest.fixture(scope="module")
def h100(own_machine: Callable[[str], HostRoot]) -> HostTopology:
    return read_topology(own_machine("h100-server"))


def request(
    name: str,
    *gpus: str | None,
    setting: str = "auto",
    mask: str = ALL,
    quota: float | None = None,
    created: int = 0,
) -> DeploymentRequest:
    """The only container `engine` of a pod; pods are created in the second that `created` says."""
    return DeploymentRequest(
        pod=PodRef("default", name, f"uid-{name}", f"2026-01-01T00:00:{created:02}Z"),
        container="engine",
        position=0,
        setting=setting,
        workers=tuple(WorkerDevice(gpu, None if gpu is None else f"GPU-{gpu}") for gpu in gpus),
        devices=tuple(f"GPU-{gpu}" for gpu in gpus if gpu),
        mask=parse_cpu_list(mask),
        quota=quota,
    )


def pins(plan: ContainerPlan) -> str:
    """The workers' CPUs and the result CPU."""
    return f"{';'.join(format_cpu_list(worker.cpus) for worker in plan.workers)} result {plan.result}"


def key(name: str) -> Key:
    return (f"uid-{name}", "engine")


def kept(requests: Sequence[DeploymentRequest], plans: dict[Key, ContainerPlan]) -> list[DeploymentRequest]:
    """The requests as they are asked again, with what was published."""
    return [replace(asked, previous=plans.get(asked.key)) for asked in requests]


def test_a_deployment_alone_gets_the_steps_of_its_gpu(h100: HostTopology) -> None:
    plan = plan_node([request("a", GPU_B)], h100)[key("a")]
    assert (pins(plan), plan.status, plan.confidence) == ("1,113 result 54", Status.PINNED, "consistent")


def test_deployments_on_different_gpus_do_not_know_of_each_other(h100: HostTopology) -> None:
    plans = plan_node([request("a", GPU_A), request("b", GPU_B, created=1)], h100)
    assert [pins(plans[key(name)]) for name in "ab"] == ["0,112 result 55", "1,113 result 54"]


def test_further_deployments_on_a_gpu_climb_its_steps_from_both_ends(h100: HostTopology) -> None:
    """Four GPUs share the node, so GPU 43 (rank 1) owns cores 1, 5, 9, ... and from the top 54, 50, 46, ..."""
    plans = plan_node([request(name, GPU_B, created=second) for second, name in enumerate("abc")], h100)
    assert [pins(plans[key(name)]) for name in "abc"] == ["1,113 result 54", "5,117 result 50", "9,121 result 46"]


def test_a_deployment_of_two_workers_skips_the_steps_that_neighbours_hold(h100: HostTopology) -> None:
    plans = plan_node([request("a", GPU_B), request("b", GPU_B, GPU_B, created=1)], h100)
    assert pins(plans[key("b")]) == "5,117;9,121 result 50"


def test_the_first_step_is_used_again_once_its_holder_has_ended(h100: HostTopology) -> None:
    asked = [request("a", GPU_B), request("b", GPU_B, created=1)]
    later = [*kept(asked, plan_node(asked, h100))[1:], request("c", GPU_B, created=2)]
    plans = plan_node(later, h100)
    assert [pins(plans[key(name)]) for name in "bc"] == ["5,117 result 50", "1,113 result 54"]


def test_when_no_step_is_left_nothing_is_pinned_and_the_holders_are_named(h100: HostTopology) -> None:
    """16 CPUs: cores 0 to 7, of which GPU 1b may take 0 at the bottom (its next step, 4, is in the top four)."""
    mask = "0-7,112-119"
    plans = plan_node([request("a", GPU_A, mask=mask), request("b", GPU_A, mask=mask, created=1)], h100)
    refused = plans[key("b")]
    assert (refused.reason, refused.status) == ("conflict", Status.NOT_PINNED)
    assert refused.why.endswith(f"is held by default/a container engine; {ASK_AGAIN}")


def test_newcomers_are_planned_by_creation_then_uid(h100: HostTopology) -> None:
    plans = plan_node([request("z", GPU_B), request("y", GPU_B), request("x", GPU_B, created=1)], h100)
    assert [pins(plans[key(name)]) for name in "yzx"] == ["1,113 result 54", "5,117 result 50", "9,121 result 46"]


def test_an_earlier_pod_that_is_annotated_later_moves_nobody(h100: HostTopology) -> None:
    asked = [request("late", GPU_B, created=9)]
    plans = plan_node([*kept(asked, plan_node(asked, h100)), request("early", GPU_B)], h100)
    assert pins(plans[key("late")]) == "1,113 result 54"


def test_a_number_whose_core_is_held_is_an_error_that_names_the_holder(h100: HostTopology) -> None:
    """CPU 113 is the sibling of 1, which the first deployment pins."""
    plans = plan_node([request("a", GPU_B), request("b", GPU_B, setting="113", created=1)], h100)
    refused = plans[key("b")]
    assert (refused.reason, refused.status, refused.pinned) == ("conflict", Status.ERROR, frozenset())
    assert refused.why == (
        "step_thread_core 113: the core of CPU 113 (1,113) is held by default/a container engine; "
        f"choose a CPU of another core, or auto; {ASK_AGAIN}"
    )


def test_a_number_steps_over_cores_that_neighbours_hold(h100: HostTopology) -> None:
    plans = plan_node([request("a", GPU_B), request("b", None, None, setting="0", created=1)], h100)
    assert pins(plans[key("b")]) == "0,112;2,114 result 111"


def test_two_containers_of_a_pod_are_two_deployments(h100: HostTopology) -> None:
    first = request("a", GPU_B)
    second = replace(first, container="draft", position=1)
    plans = plan_node([second, first], h100)
    assert [pins(plans[asked.key]) for asked in (first, second)] == ["1,113 result 54", "5,117 result 50"]


@pytest.mark.parametrize(
    "change",
    [{"mask": parse_cpu_list("0-55,112-167")}, {"setting": "8"}, {"devices": ("GPU-other",)}],
)
def test_a_change_of_its_own_plans_a_deployment_anew(h100: HostTopology, change: dict[str, object]) -> None:
    asked = [request("a", GPU_B), request("b", GPU_B, created=1)]
    plans = plan_node(asked, h100)
    later = [replace(kept(asked, plans)[1], **change)]  # type: ignore[arg-type]
    assert plan_node(later, h100)[key("b")].pinned != plans[key("b")].pinned


def test_a_new_quota_changes_the_pools_and_moves_no_pin(h100: HostTopology) -> None:
    asked = [request("a", GPU_B), request("b", GPU_B, created=1, quota=16.0)]
    later = [replace(kept(asked, plan_node(asked, h100))[1], quota=4.5)]
    plan = plan_node(later, h100)[key("b")]
    assert (pins(plan), plan.quota, plan.usable, plan.pools.left) == ("5,117 result 50", 4.5, 4, 1)


def test_after_a_boot_the_plans_are_made_anew(h100: HostTopology) -> None:
    asked = [request("a", GPU_B), request("b", GPU_B, created=1)]
    assert pins(plan_node(asked[1:], h100)[key("b")]) == "1,113 result 54"


def test_while_the_devices_cannot_be_seen_a_plan_stays(h100: HostTopology) -> None:
    asked = [request("a", GPU_B)]
    waiting = Refusal("waiting-for-devices", "the kubelet does not answer")
    blind = [replace(kept(asked, plan_node(asked, h100))[0], workers=(), devices=(), refusal=waiting)]
    assert pins(plan_node(blind, h100)[key("a")]) == "1,113 result 54"


def test_a_deployment_without_devices_yet_is_planned_once_they_are_there(h100: HostTopology) -> None:
    asked = request("a", GPU_B)
    waiting = replace(asked, workers=(), devices=(), refusal=Refusal("waiting-for-devices", "1 of 2 devices"))
    first = plan_node([waiting], h100)[asked.key]
    assert (first.reason, first.why, first.status) == ("waiting-for-devices", "1 of 2 devices", Status.NOT_PINNED)
    assert pins(plan_node([replace(asked, previous=first)], h100)[asked.key]) == "1,113 result 54"


def test_a_planned_number_that_leaves_the_mask_is_gone(h100: HostTopology) -> None:
    asked = request("a", GPU_B, setting="100")
    planned = plan_node([asked], h100)[asked.key]
    plan = plan_node([replace(asked, mask=parse_cpu_list("0-55"), previous=planned)], h100)[asked.key]
    assert (plan.reason, plan.status) == ("cpu-gone", Status.ERROR)
    assert plan.why.endswith("(it was in the mask when this pod was planned)")


def test_the_last_free_cpu_of_a_neighbours_mask_is_never_pinned(h100: HostTopology) -> None:
    """The neighbour's mask is cores 1 and 54: pinning both for GPU 43 would leave it nothing."""
    plans = plan_node([request("a", GPU_B), request("b", setting="off", mask="1,54,113", created=1)], h100)
    assert (plans[key("a")].reason, plans[key("a")].status) == ("would-pin-all", Status.NOT_PINNED)
    assert plans[key("a")].why == (
        "nothing is pinned: pinning 1,54,113 would leave no unpinned CPU in the mask of "
        f"default/b container engine (1,54,113); {ASK_AGAIN}"
    )


def test_pools_float_on_what_nobody_pins(h100: HostTopology) -> None:
    """Whole cores are kept free: the result CPUs 55 and 54 keep their siblings 167 and 166 from the pools too."""
    plans = plan_node([request("a", GPU_A), request("b", GPU_B, created=1)], h100)
    assert {format_cpu_list(plan.pool_cpus) for plan in plans.values()} == {"2-53,56-111,114-165,168-223"}


@pytest.mark.parametrize(("most", "reason"), [(2, "over-share"), (3, "pinned"), (None, "pinned")])
def test_an_administrator_bounds_what_a_pod_may_pin(h100: HostTopology, most: int | None, reason: str) -> None:
    plans = plan_node([request("a", GPU_B)], h100, NodeRules(most_pinned_per_pod=most))
    assert plans[key("a")].reason == reason


def test_the_bound_counts_all_containers_of_a_pod(h100: HostTopology) -> None:
    first = request("a", GPU_B)
    second = replace(first, container="draft", position=1)
    plans = plan_node([first, second], h100, NodeRules(most_pinned_per_pod=5))
    assert (plans[first.key].reason, plans[second.key].reason) == ("pinned", "over-share")
    assert plans[second.key].why == (
        "nothing is pinned: pinning 5,50,117 would make 6 pinned CPUs for the pod, this node allows 5 "
        f"(agent.maxPinnedPerPod); {ASK_AGAIN}"
    )


@pytest.mark.parametrize("setting", ["auto", "1", "0"])
def test_what_is_refused_for_the_sake_of_others_says_how_to_ask_again(h100: HostTopology, setting: str) -> None:
    """Two cores: the first deployment holds one of them and the result CPU."""
    mask = "0-2,112-114"
    asked = [request("a", None, mask=mask), request("b", None, None, setting=setting, mask=mask, created=1)]
    refused = plan_node(asked, h100)[key("b")]
    assert (refused.pinned, refused.why.endswith(f"; {ASK_AGAIN}")) == (frozenset(), True)


@pytest.mark.parametrize("setting", ["auto", "0", "900"])
def test_what_its_own_request_makes_impossible_does_not(h100: HostTopology, setting: str) -> None:
    refused = plan_node([request("a", None, None, setting=setting, mask="0-1,112-113")], h100)[key("a")]
    assert (refused.pinned, ASK_AGAIN in refused.why) == (frozenset(), False)


@pytest.mark.parametrize(("most", "reason"), [(2, "over-share"), (3, "pinned"), (None, "pinned")])
def test_what_a_bound_refused_is_planned_anew_when_the_bound_is_another(
    h100: HostTopology, most: int | None, reason: str
) -> None:
    asked = [request("a", GPU_A)]
    refused = plan_node(asked, h100, NodeRules(most_pinned_per_pod=2))
    assert refused[key("a")].reason == "over-share"
    again = plan_node(kept(asked, refused), h100, NodeRules(most_pinned_per_pod=most))
    assert again[key("a")].reason == reason


def test_a_lower_bound_unpins_nobody(h100: HostTopology) -> None:
    asked = [request("a", GPU_A)]
    pinned = plan_node(asked, h100)
    assert plan_node(kept(asked, pinned), h100, NodeRules(most_pinned_per_pod=1)) == pinned


def test_what_a_bound_refused_waits_for_devices_as_it_is(h100: HostTopology) -> None:
    refused = plan_node([request("a", GPU_A)], h100, NodeRules(most_pinned_per_pod=2))
    unseen = replace(request("a"), refusal=Refusal("waiting-for-devices", "the kubelet restarts"))
    assert plan_node(kept([unseen], refused), h100) == refused


def test_what_neighbours_refused_stays_refused_without_them(h100: HostTopology) -> None:
    """docs/decisions/0002."""
    mask = "0-7,112-119"
    asked = [request("a", GPU_A, mask=mask), request("b", GPU_A, mask=mask, created=1)]
    plans = plan_node(asked, h100)
    assert plan_node(kept(asked, plans)[1:], h100)[key("b")].reason == "conflict"


RESERVED = (Withheld(WithheldFor.RESERVED, parse_cpu_list("0-1")),)


def test_what_pins_nothing_is_planned_anew_when_other_cpus_are_withheld(h100: HostTopology) -> None:
    """All of its CPUs were reserved: the mask is the same with and without."""
    refusal = Refusal("nothing-to-place", "every CPU is reserved")
    refused = plan_node([replace(request("a", GPU_A), withheld=RESERVED, refusal=refusal)], h100)
    later = kept([request("a", GPU_A)], refused)
    assert (refused[key("a")].withheld, plan_node(later, h100)[key("a")].reason) == (RESERVED, "pinned")


def test_pins_stay_when_other_cpus_are_withheld_and_these_are_published(h100: HostTopology) -> None:
    asked = [request("a", GPU_A, mask="2-223")]
    before = plan_node(asked, h100)[key("a")]
    after = plan_node([replace(asked[0], withheld=RESERVED, previous=before)], h100)[key("a")]
    assert after == replace(before, withheld=RESERVED)


def test_a_quota_too_small_for_the_workers_is_said_with_the_plan(h100: HostTopology) -> None:
    plan = plan_node([request("a", GPU_A, GPU_B, quota=2)], h100)[key("a")]
    assert (plan.reason, plan.shortage) == (
        "pinned",
        "2 usable CPUs cannot serve 2 workers: 6 are needed, for pins or a step thread each, a result thread "
        "and a pool thread; raise the CPU limit, or run fewer workers",
    )


def test_a_quota_that_becomes_too_small_is_said_and_moves_nothing(h100: HostTopology) -> None:
    asked = [request("a", GPU_A)]
    before = plan_node(asked, h100)
    shrunk = [replace(asked[0], quota=2)]
    after = plan_node(kept(shrunk, before), h100)
    assert (after[key("a")].pinned, before[key("a")].shortage) == (before[key("a")].pinned, "")
    assert after[key("a")].shortage.startswith("2 usable CPUs cannot serve 1 worker")
    assert plan_node(kept(asked, after), h100) == before


@pytest.mark.parametrize("setting", ["off", "auto"])
def test_without_workers_or_a_wish_for_pins_no_shortage_is_told(h100: HostTopology, setting: str) -> None:
    workers = (GPU_A,) if setting == "off" else ()
    assert plan_node([request("a", *workers, setting=setting, quota=1)], h100)[key("a")].shortage == ""


def test_off_and_a_bad_value_are_what_they_are_beside_others(h100: HostTopology) -> None:
    plans = plan_node([request("a", GPU_B, setting="off"), request("b", GPU_B, setting="banana")], h100)
    assert [plans[key(name)].status for name in "ab"] == [Status.OFF, Status.ERROR]
    assert plans[key("b")].why == "step_thread_core is 'banana': expected off, auto or a CPU number such as 4"


def test_pins_that_stay_are_no_better_known_for_an_override_that_came_later(h100: HostTopology) -> None:
    """They lie where sysfs said that the GPU was, which the administrator has contradicted since."""
    lost = replace(h100, functions=tuple(replace(f, node="-1", local=None) for f in h100.functions))
    asked = [request("a", GPU_B)]
    before = plan_node(asked, lost)
    placements = tuple(GpuPlacement(f.address, 0) for f in h100.functions)
    found = override_topology(lost, placements).topology
    after = plan_node(kept(asked, before), found)[key("a")]
    assert (before[key("a")].confidence, after) == ("unknown", before[key("a")])
    assert plan_node(asked, found)[key("a")].confidence != "unknown"


def test_pins_that_stay_are_worse_known_where_the_topology_becomes_contradictory(h100: HostTopology) -> None:
    asked = [request("a", GPU_B)]
    before = plan_node(asked, h100)
    lost = replace(h100, functions=tuple(replace(f, node="-1", local=None) for f in h100.functions))
    assert plan_node(kept(asked, before), lost)[key("a")].confidence == "unknown"


@pytest.mark.parametrize("functions", [(), None], ids=["without functions", "without places"])
def test_pins_are_known_as_well_as_before_once_the_topology_is_whole_again(
    h100: HostTopology, functions: tuple[()] | None
) -> None:
    asked = [request("a", GPU_B)]
    lost = tuple(replace(f, node="-1", local=None) for f in h100.functions) if functions is None else functions
    before = plan_node(asked, h100)
    meanwhile = plan_node(kept(asked, before), replace(h100, functions=lost))
    still = plan_node(kept(asked, meanwhile), replace(h100, functions=lost))
    unseen = [replace(asked[0], workers=(), refusal=Refusal("waiting-for-devices", "not yet"))]
    unseen_then = plan_node(kept(unseen, still), h100)
    after = plan_node(kept(asked, unseen_then), h100)
    assert [plans[key("a")].confidence for plans in (meanwhile, still, unseen_then)] == ["unknown"] * 3
    assert (still, after) == (meanwhile, before)


def test_a_device_that_the_host_does_not_know_lowers_the_confidence(h100: HostTopology) -> None:
    plan = plan_node([request("a", "0000:ff:00.0")], h100)[key("a")]
    assert (pins(plan), plan.confidence) == ("0,112 result 111", "unknown")
