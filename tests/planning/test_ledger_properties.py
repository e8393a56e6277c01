"""Random histories of a node keep every invariant, and a ledger that breaks one on purpose is caught."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpuplan.model.plan import CpuPlan, StepCpus
from cpuplan.planning import ledger
from cpuplan.planning.deployment import plan_deployment
from cpuplan.planning.ledger import plan_node
from tests.planning.ledger_search import violations_in

SEEDS = st.integers(0, 2**48)


@settings(max_examples=120, deadline=None)
@given(SEEDS)
def test_a_random_history_of_a_node_keeps_every_invariant(seed: int) -> None:
    assert violations_in(seed) == []


Book = Any
Breakage = Callable[[pytest.MonkeyPatch], None]


def forget_what_is_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger._Book, "_enter", lambda book, request, plan: book._plans.update({request.key: plan}))


def hold_cpus_instead_of_cores(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger, "with_core_mates", lambda cpus, _: cpus)


def keep_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger._Book, "keep", lambda *_: False)


def keep_whatever_stands_on_the_pod(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger, "is_sound", lambda _: True)


def keep_plans_that_overlap(patch: pytest.MonkeyPatch) -> None:
    def keep(book: Book, request: Any) -> bool:
        if request.previous is None or not ledger.holds_still(request) or not ledger.is_sound(request.previous):
            return False
        book._enter(request, request.previous)
        return True

    patch.setattr(ledger._Book, "keep", keep)


def grant_the_last_cpu(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger._Book, "_objection", lambda *_: None)


def let_pools_float_on_neighbours(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger, "_pool_cpus", lambda plan, held: plan.mask - plan.pinned)


def take_requests_as_they_come(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger, "sorted", lambda requests, key: list(requests), raising=False)


def ignore_the_holder_of_a_number(patch: pytest.MonkeyPatch) -> None:
    def plan(setting: object, addresses: Any, **facts: Any) -> CpuPlan:
        return plan_deployment("auto" if isinstance(setting, int) else setting, addresses, **facts)

    patch.setattr(ledger, "plan_deployment", plan)


def plan_from_the_top(patch: pytest.MonkeyPatch) -> None:
    def plan(setting: object, addresses: Any, **facts: Any) -> CpuPlan:
        made = plan_deployment(setting, addresses, **facts)
        steps = [StepCpus(worker.cpus, worker.why) for worker in made.workers if worker is not None]
        return replace(made, workers=tuple(reversed(steps)))

    patch.setattr(ledger, "plan_deployment", plan)


def forget_the_quota(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger, "usable_count", lambda size, quota: max(1, size))


def publish_another_sentence_each_time(patch: pytest.MonkeyPatch) -> None:
    real = ledger._Book._enter

    def enter(book: Book, request: Any, plan: Any) -> None:
        real(book, request, replace(plan, why=plan.why + "."))

    patch.setattr(ledger._Book, "_enter", enter)


def lose_the_result_cpu(patch: pytest.MonkeyPatch) -> None:
    real = ledger._Book._enter
    patch.setattr(ledger._Book, "_enter", lambda book, request, plan: real(book, request, replace(plan, result=None)))


@pytest.mark.parametrize(
    ("breakage", "invariant"),
    [
        (forget_what_is_held, "pinned_cores_never_overlap"),
        (hold_cpus_instead_of_cores, "pinned_cores_never_overlap"),
        (keep_plans_that_overlap, "pinned_cores_never_overlap"),
        (keep_nothing, "pins_are_sticky"),
        (keep_whatever_stands_on_the_pod, "plans_are_whole"),
        (lose_the_result_cpu, "plans_are_whole"),
        (plan_from_the_top, "a_deployment_alone_gets_its_deployment_plan"),
        (grant_the_last_cpu, "a_mask_is_never_pinned_whole"),
        (grant_the_last_cpu, "newcomers_keep_to_the_share_of_a_pod"),
        (let_pools_float_on_neighbours, "pools_float_where_nobody_pins"),
        (ignore_the_holder_of_a_number, "a_number_that_is_held_is_an_error_naming_the_holder"),
        (forget_the_quota, "usable_cpus_follow_the_quota"),
        (take_requests_as_they_come, "the_order_of_the_requests_does_not_matter"),
        (publish_another_sentence_each_time, "a_restart_changes_nothing"),
        (keep_nothing, "a_restart_changes_nothing"),
    ],
)
def test_a_ledger_that_breaks_an_invariant_on_purpose_is_caught(
    breakage: Breakage, invariant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    breakage(monkeypatch)
    histories = (violations_in(seed, plan_node) for seed in range(400))
    assert any(f"{invariant}:" in what for found in histories for what in found)
