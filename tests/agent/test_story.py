"""Random stories of a node keep every rule, and an agent that breaks one on purpose is caught."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cpuplan.agent import containers, loop
from cpuplan.agent.writing import patch_of
from cpuplan.kube.annotations import annotations_of
from cpuplan.planning import ledger
from tests.agent.node import MakeNode
from tests.agent.story_search import violations_in

as_published = ledger._Book._as_published


@pytest.mark.parametrize("machine", ["nps4-four-gpus", "worn-server", "gh200"])
def test_a_random_story_of_a_node_keeps_every_rule(make_node: MakeNode, tmp_path: Path, machine: str) -> None:
    assert violations_in(make_node(machine), 1, tmp_path, events=50) == []


Breakage = Callable[[pytest.MonkeyPatch], None]


def never_clean(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(loop.NodeAgent, "_clean", lambda *_: None)


def leave_an_annotation_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(loop, "annotations_of", lambda plan: dict(list(annotations_of(plan).items())[1:]))


def measure_confidence_in_words_of_its_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger._Book, "_confidence", lambda *_: "fairly sure")


def forget_what_is_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger._Book, "_enter", lambda book, request, plan: book._plans.update({request.key: plan}))


def lose_the_result_cpu(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger._Book, "_as_published", lambda *of: replace(as_published(*of), result=None))


def ignore_the_quota(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger, "usable_count", lambda size, _: size)


def keep_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger._Book, "keep", lambda *_: False)


def let_generations_stand(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(containers, "next_plan", lambda _, plan: plan)


def let_pools_float_on_pins(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger, "_pool_cpus", lambda plan, _: plan.mask)


def write_beyond_the_fence(patch: pytest.MonkeyPatch) -> None:
    def with_a_label(*of: Any) -> Any:
        made = patch_of(*of)
        return None if made is None else {**made, "spec": {}}

    patch.setattr(loop, "patch_of", with_a_label)


def write_something_new_at_each_start(patch: pytest.MonkeyPatch) -> None:
    starts, begin = itertools.count(), loop.NodeAgent.__init__
    number = "0"

    def count_starts(agent: loop.NodeAgent, *of: Any, **named: Any) -> None:
        nonlocal number
        number = str(next(starts))
        begin(agent, *of, **named)

    patch.setattr(loop.NodeAgent, "__init__", count_starts)
    patch.setattr(loop, "hostflag_annotation", lambda *_: number)


def never_set_the_label(patch: pytest.MonkeyPatch) -> None:
    def without_label(*of: Any) -> Any:
        made = patch_of(*of)
        return None if made is None else {"metadata": {**made["metadata"], "labels": {}}}

    patch.setattr(loop, "patch_of", without_label)


@pytest.mark.parametrize(
    ("place", "broken", "rule"),
    [
        (("nps4-four-gpus", 2), never_clean, "pods_that_do_not_ask_carry_nothing_of_ours: "),
        (("nps4-four-gpus", 2), leave_an_annotation_out, "pods_that_ask_carry_their_plan: "),
        (("nps4-four-gpus", 2), measure_confidence_in_words_of_its_own, "plans_fit_the_published_schema: "),
        (("gh200", 3), forget_what_is_held, "cores_are_held_once: "),
        (("nps4-four-gpus", 2), lose_the_result_cpu, "plans_are_whole: "),
        (("nps4-four-gpus", 2), ignore_the_quota, "plans_follow_what_was_told: "),
        (("worn-server", 2), keep_nothing, "pins_are_sticky: "),
        (("nps4-four-gpus", 2), let_generations_stand, "generations_rise_with_changes: "),
        (("nps4-four-gpus", 2), let_pools_float_on_pins, "pools_float_beside_all_pins: "),
        (("nps4-four-gpus", 2), write_beyond_the_fence, "patches_stay_within_the_fence: "),
        (("nps4-four-gpus", 2), write_something_new_at_each_start, "a_restart_writes_nothing: "),
        (("nps4-four-gpus", 2), never_set_the_label, "the agent does not come to rest: "),
    ],
)
def test_an_agent_that_breaks_a_rule_is_caught(
    make_node: MakeNode, tmp_path: Path, place: tuple[str, int], broken: Breakage, rule: str
) -> None:
    """`place`: a machine, and the seed of a story that soon comes to what is broken."""
    machine, seed = place
    with pytest.MonkeyPatch.context() as patch:
        broken(patch)
        found = violations_in(make_node(machine), seed, tmp_path, events=100)

    assert rule in [line[: len(rule)] for line in found]
