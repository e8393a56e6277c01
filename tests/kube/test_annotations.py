"""Plans as pod annotations, both ways."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given

from cpuplan.kube.annotations import (
    HOSTFLAG_BYTES,
    MOST_BYTES,
    annotations_of,
    changed_annotations,
    is_ours,
    is_planned,
    next_plan,
    plan_in,
    setting_of,
)
from cpuplan.model.cpulist import parse_cpu_list
from cpuplan.model.errors import CpuPlanError
from cpuplan.model.podplan import ContainerPlan, PodPlan, WorkerPlan
from cpuplan.model.withheld import Withheld, WithheldFor
from tests.model.test_podplan import POD_PLANS

MASK = parse_cpu_list("0-223")


def container(workers: int = 2, *, mask: frozenset[int] = MASK, reason: str = "pinned") -> ContainerPlan:
    """A plan with MIG devices, whose ids are the longest there are."""
    is_pinned = reason == "pinned"
    steps = [frozenset({index, 112 + index}) if is_pinned else frozenset[int]() for index in range(workers)]
    ids = [f"MIG-41b3359c-e721-56e5-8009-12e5797ed5{index:02}" for index in range(workers)]
    return ContainerPlan(
        setting="auto",
        mask=mask,
        quota=16.5,
        usable=16,
        devices=tuple(ids),
        workers=tuple(
            WorkerPlan(f"0000:{index:02x}:00.0", ids[index], cpus, f"core {index} of NUMA node 0 for its GPU")
            for index, cpus in enumerate(steps)
        ),
        result=55 if is_pinned else None,
        pool_cpus=mask - frozenset().union(*steps) - {55, 167},
        confidence="consistent",
        reason=reason,
        why="step threads on " + "; ".join(f"{index},{112 + index}" for index in range(workers)),
    )


def pod(*containers: tuple[str, ContainerPlan]) -> PodPlan:
    return PodPlan(
        1, "5a1c3a36-7c0c-4d0e-9c6e-2f0b6c9d1e77", "9b0c7d7e-1f36-4a52-8f55-0d2a0e8f3b21", "gpu-1", containers
    )


def size_bytes(texts: Mapping[str, str]) -> int:
    return sum(len(key) + len(text.encode()) for key, text in texts.items())


def test_a_pinned_plan_is_published_under_every_key() -> None:
    texts = annotations_of(pod(("engine", container())))
    assert {key.removeprefix("cpuplan.dev/"): text for key, text in texts.items() if key != "cpuplan.dev/plan"} == {
        "status": "Pinned",
        "step-cpus": "engine=0,112;1,113",
        "result-cpu": "engine=55",
        "usable-cpus": "engine=16",
        "why": "step threads on 0,112; 1,113",
    }
    assert json.loads(texts["cpuplan.dev/plan"])["containers"]["engine"]["workers"][1]["cpus"] == "1,113"


def test_several_containers_are_separated_by_a_blank() -> None:
    texts = annotations_of(pod(("engine", container(1)), ("draft", container(2))))
    assert texts["cpuplan.dev/step-cpus"] == "engine=0,112 draft=0,112;1,113"
    assert texts["cpuplan.dev/result-cpu"] == "engine=55 draft=55"
    assert texts["cpuplan.dev/why"] == "engine: step threads on 0,112; draft: step threads on 0,112; 1,113"


def test_a_shortage_follows_the_sentence_of_its_container() -> None:
    short = replace(container(1), shortage="2 usable CPUs cannot serve 1 worker")
    told = "step threads on 0,112; 2 usable CPUs cannot serve 1 worker"
    assert annotations_of(pod(("engine", short)))["cpuplan.dev/why"] == told
    several = annotations_of(pod(("engine", short), ("draft", container(1))))["cpuplan.dev/why"]
    assert several == f"engine: {told}; draft: step threads on 0,112"


def test_an_error_is_told_without_the_shortage_beside_it() -> None:
    wrong = replace(container(reason="outside-mask"), why="CPU 9 is outside the mask", shortage="1 is too few")
    assert annotations_of(pod(("engine", wrong)))["cpuplan.dev/why"] == "CPU 9 is outside the mask"


def test_a_plan_without_pins_has_no_keys_for_pins() -> None:
    texts = annotations_of(pod(("engine", container(reason="conflict"))))
    assert set(texts) == {f"cpuplan.dev/{key}" for key in ("status", "usable-cpus", "why", "plan")}
    assert texts["cpuplan.dev/status"] == "NotPinned"


@given(POD_PLANS)
def test_what_is_published_reads_back_equal(plan: PodPlan) -> None:
    assert plan_in(annotations_of(plan)) == plan


def test_without_the_annotation_there_is_no_plan() -> None:
    assert plan_in({"cpuplan.dev/status": "Pinned"}) is None


def test_what_is_no_plan_is_refused() -> None:
    with pytest.raises(CpuPlanError, match="not a published plan"):
        plan_in({"cpuplan.dev/plan": "{}"})


def test_a_first_plan_has_generation_one() -> None:
    assert next_plan(None, replace(pod(("engine", container())), generation=7)).generation == 1


def test_a_changed_plan_has_the_next_generation() -> None:
    previous = replace(pod(("engine", container())), generation=4)
    assert next_plan(previous, pod(("engine", container(1)))).generation == 5


def test_the_same_plan_is_the_previous_one_itself() -> None:
    previous = replace(pod(("engine", container())), generation=4)
    assert next_plan(previous, pod(("engine", container()))) is previous


def test_a_shortened_plan_that_is_planned_again_is_the_previous_one_itself() -> None:
    plan = pod(("engine", container(16)))
    first = next_plan(None, plan)
    assert first.containers != plan.containers
    assert next_plan(first, plan) is first
    assert next_plan(first, replace(first, generation=1)) is first


PIECES = parse_cpu_list(",".join(str(cpu) for cpu in range(0, 224, 2)))


@pytest.mark.parametrize(
    ("containers", "workers", "mask"),
    [(1, 24, MASK), (2, 8, MASK), (4, 4, MASK), (6, 1, MASK), (1, 16, PIECES), (2, 2, PIECES), (1, 1, MASK)],
)
def test_the_usual_plans_stay_below_four_kibibytes(containers: int, workers: int, mask: frozenset[int]) -> None:
    """With room for the self-test's verdict."""
    plan = pod(*[(f"engine-{index}", container(workers, mask=mask)) for index in range(containers)])
    assert size_bytes(annotations_of(next_plan(None, plan))) + HOSTFLAG_BYTES <= MOST_BYTES


@pytest.mark.parametrize(("containers", "workers"), [(1, 24), (3, 4), (5, 1)])
def test_the_usual_plans_stay_there_with_all_that_is_told_of_their_cpus(containers: int, workers: int) -> None:
    """The sentence of a shortage, and two kinds of CPUs that are withheld."""
    full = replace(
        container(workers),
        shortage=f"2 usable CPUs cannot serve {workers} workers: pins or one step thread each, a result thread and "
        "one pool thread need 50; raise the CPU limit, or run fewer workers",
        withheld=(
            Withheld(WithheldFor.ISOLATED, parse_cpu_list("2-9,114-121")),
            Withheld(WithheldFor.RESERVED, parse_cpu_list("0-1,112-113")),
        ),
    )
    plan = pod(*[(f"engine-{index}", full) for index in range(containers)])
    short = next_plan(None, plan)
    assert size_bytes(annotations_of(short)) + HOSTFLAG_BYTES <= MOST_BYTES
    assert [c.withheld for _, c in short.containers] == [full.withheld] * containers
    assert next_plan(short, plan) is short


def test_a_plan_that_is_shortened_keeps_its_pins_and_devices() -> None:
    plan = pod(*[(f"engine-{index}", container(8)) for index in range(8)])
    short = next_plan(None, plan)
    assert [(c.pinned, c.devices, c.mask, c.pool_cpus) for _, c in short.containers] == [
        (c.pinned, c.devices, c.mask, c.pool_cpus) for _, c in plan.containers
    ]
    assert all(len(c.why) <= 20 for _, c in short.containers)


def test_a_small_plan_is_published_as_it_is() -> None:
    plan = pod(("engine", container()))
    assert next_plan(None, plan) == plan


USERS = {"step_thread_core": "auto", "cpuplan.dev/workers": "0,1", "cpuplan.dev/container": "engine"}


def test_nothing_changes_where_everything_stands() -> None:
    texts = annotations_of(pod(("engine", container())))
    assert changed_annotations(USERS | texts, texts) == {}


def test_only_what_differs_is_written() -> None:
    texts = annotations_of(pod(("engine", container())))
    current = USERS | texts | {"cpuplan.dev/status": "NotPinned", "kubectl.kubernetes.io/x": "y"}
    assert changed_annotations(current, texts) == {"cpuplan.dev/status": "Pinned"}


def test_what_has_nothing_to_say_any_more_is_removed() -> None:
    pinned = annotations_of(pod(("engine", container())))
    unpinned = annotations_of(pod(("engine", container(reason="conflict"))))
    changes = changed_annotations(pinned, unpinned)
    assert {key for key, text in changes.items() if text is None} == {"cpuplan.dev/step-cpus", "cpuplan.dev/result-cpu"}


def test_removing_the_plan_removes_every_key_of_ours_and_no_other() -> None:
    current = USERS | annotations_of(pod(("engine", container()))) | {"cpuplan.dev/hostflag": "ok", "other": "x"}
    ours = ("status", "step-cpus", "result-cpu", "usable-cpus", "why", "plan", "hostflag")
    assert changed_annotations(current, {}) == {f"cpuplan.dev/{key}": None for key in ours}


@pytest.mark.parametrize(
    ("key", "ours"),
    [
        ("cpuplan.dev/plan", True),
        ("cpuplan.dev/anything-later", True),
        ("cpuplan.dev/workers", False),
        ("cpuplan.dev/container", False),
        ("cpuplan.dev/selftest", False),
        ("step_thread_core", False),
        ("example.com/cpuplan.dev/plan", False),
    ],
)
def test_only_our_keys_are_ours(key: str, ours: bool) -> None:
    assert is_ours(key) is ours


def test_a_pod_asks_for_a_plan_by_its_setting_alone() -> None:
    assert is_planned({"step_thread_core": "off"})
    assert not is_planned({"cpuplan.dev/workers": "0"})
    assert (setting_of({"step_thread_core": "4"}), setting_of({})) == ("4", "off")
