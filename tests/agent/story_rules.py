"""What holds on a node at rest, whatever has happened to it; each rule is broken on purpose by a test."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from jsonschema import Draft202012Validator

from cpuplan.host.identity import read_boot_id
from cpuplan.host.sysfs import read_topology
from cpuplan.kube.annotations import MOST_BYTES, PLAN, annotations_of, is_ours
from cpuplan.model import reasons
from cpuplan.model.cpulist import format_cpu_list
from cpuplan.model.plan import usable_count
from cpuplan.model.podplan import ContainerPlan, PodPlan, Status
from cpuplan.model.topology import HostTopology
from tests.agent.story import Story
from tests.agent.told import ToldPod
from tests.wholecores import whole_cores

SCHEMA = Draft202012Validator(json.loads((Path(__file__).parents[2] / "docs" / "plan.schema.json").read_text()))

NOT_YET_PLANNED = (reasons.WAITING_FOR_DEVICES, reasons.DEVICE_UNKNOWN, reasons.NO_DEVICE)


@dataclass(frozen=True, slots=True)
class AtRest:
    """The node at rest: what was told, and what stands on its pods.

    Attributes:
        plans: by pod name, of every pod that has one.
        facts: by pod name, all that may decide its pins, as text.
        seen: who can be asked, of kubelet and driver.
        before: the node when it was at rest before; None the first time.
    """

    story: Story
    topology: HostTopology
    plans: dict[str, PodPlan]
    facts: dict[str, str]
    seen: frozenset[str]
    before: AtRest | None

    @property
    def live(self) -> list[tuple[ToldPod, str, ContainerPlan]]:
        """Every container plan that counts in the ledger; what a pod that leaves had before a boot runs no more."""
        pods, boot_id = self.story.pods, read_boot_id(self.story.node.root)
        found = [
            (pods[name], plan) for name, plan in self.plans.items() if pods[name].is_planned and plan.boot_id == boot_id
        ]
        return [(pod, container, plan) for pod, pod_plan in found for container, plan in pod_plan.containers]

    @property
    def asking(self) -> list[tuple[ToldPod, str, ContainerPlan]]:
        """Those of pods that get new plans."""
        return [entry for entry in self.live if not entry[0].is_leaving]


def look(story: Story, before: AtRest | None) -> AtRest:
    """The node as it is now."""
    texts = {name: story.node.annotations(name).get(PLAN) for name in story.pods}
    sources = {"kubelet": story.is_kubelet_up, "driver": story.is_driver_up}
    return AtRest(
        story=story,
        topology=read_topology(story.node.root),
        plans={name: PodPlan.from_json(text) for name, text in texts.items() if text is not None},
        facts={name: f"{pod} {story.boot_count}" for name, pod in story.pods.items()},
        seen=frozenset(name for name, is_up in sources.items() if is_up),
        before=before,
    )


def violations(now: AtRest) -> list[str]:
    """One sentence per violation, beginning with the rule's name."""
    return [f"{rule.__name__}: {what}" for rule in RULES for what in rule(now)]


def pods_that_do_not_ask_carry_nothing_of_ours(now: AtRest) -> Iterator[str]:
    """The removal is complete."""
    for name, pod in now.story.pods.items():
        left = [key for key in now.story.node.annotations(name) if is_ours(key)]
        if pod.setting is None and (left or now.story.node.labels(name)):
            yield f"{name} keeps {left} {now.story.node.labels(name)}"


def pods_that_ask_carry_their_plan(now: AtRest) -> Iterator[str]:
    """All annotations of one plan of this pod and this boot, the label, and nothing else; less than 4 KiB."""
    for name, pod in now.story.pods.items():
        if not pod.is_planned or pod.is_leaving:
            continue
        if name not in now.plans:
            yield f"{name} has no plan"
            continue
        plan = now.plans[name]
        ours = {key: text for key, text in now.story.node.annotations(name).items() if is_ours(key)}
        if ours != annotations_of(plan) or now.story.node.labels(name) != {"cpuplan.dev/managed": "true"}:
            yield f"{name} carries {ours} {now.story.node.labels(name)}"
        if sum(len(key) + len(text.encode()) for key, text in ours.items()) >= MOST_BYTES:
            yield f"{name} carries too much"
        if (plan.pod_uid, plan.boot_id) != (pod.uid, read_boot_id(now.story.node.root)):
            yield f"{name} carries the plan of {plan.pod_uid} and boot {plan.boot_id}"


def plans_fit_the_published_schema(now: AtRest) -> Iterator[str]:
    """docs/plan.schema.json is what programs of others read plans by."""
    for name in now.plans:
        for error in SCHEMA.iter_errors(json.loads(now.story.node.annotations(name)[PLAN])):
            yield f"{name}: {error.message}"


def cores_are_held_once(now: AtRest) -> Iterator[str]:
    """Whole cores: nobody gets a neighbour's sibling thread."""
    for (pod, container, plan), (other, second, beside) in combinations(now.live, 2):
        shared = whole_cores(now.topology, plan.pinned) & beside.pinned
        if shared:
            yield f"{pod.name} {container} and {other.name} {second} share {format_cpu_list(shared)}"


def plans_are_whole(now: AtRest) -> Iterator[str]:
    """Pins lie within the mask and leave something of it; all workers and the result threads are pinned, or none."""
    for pod, container, plan in now.live:
        is_whole = plan.result is not None and all(worker.cpus for worker in plan.workers)
        if (plan.status is Status.PINNED) != bool(plan.pinned) or (plan.pinned and not is_whole):
            yield f"{pod.name} {container} is {plan.status} and pins {format_cpu_list(plan.pinned)}"
        if plan.pinned and not plan.pinned < plan.mask:
            yield f"{pod.name} {container} pins {format_cpu_list(plan.pinned)} of {format_cpu_list(plan.mask)}"


def plans_follow_what_was_told(now: AtRest) -> Iterator[str]:
    """Setting, mask and quota are those of the pod and of its cgroup, where that can be known."""
    for pod, container, plan in now.asking:
        if plan.setting != pod.setting:
            yield f"{pod.name} {container} is planned for {plan.setting!r}"
        if plan.usable != usable_count(len(plan.mask), plan.quota):
            yield f"{pod.name} {container} may use {plan.usable} of {len(plan.mask)} with a quota of {plan.quota}"
        granted = pod.exclusive.get(container) or pod.cpusets.get(container)
        is_known = pod.exclusive.get(container) or pod.is_running.get(container)
        if now.story.is_kubelet_up and not pod.is_hidden and granted and is_known:
            expected = (granted - now.topology.isolated) or granted
            if plan.mask != expected:
                yield f"{pod.name} {container} is planned on {format_cpu_list(plan.mask)}, runs on {expected}"


def pins_are_sticky(now: AtRest) -> Iterator[str]:
    """What happens to others moves nobody, and so does what cannot be seen any more."""
    for pod, container, plan, previous in _decided_before(now):
        if (previous.pinned, previous.reason) != (plan.pinned, plan.reason):
            yield f"{pod.name} {container} moved from {previous.why!r} to {plan.why!r}"


def plans_change_only_by_what_is_seen(now: AtRest) -> Iterator[str]:
    """Beside the CPUs that pools float on, which follow the neighbours. Where an annotation is wrong, only an error is
    planned: nobody has to wait for what is seen again."""
    for pod, container, plan, previous in _decided_before(now):
        if previous.workers and replace(plan, pool_cpus=previous.pool_cpus) != previous:
            yield f"{pod.name} {container}: {previous} became {plan}"


def _decided_before(now: AtRest) -> Iterator[tuple[ToldPod, str, ContainerPlan, ContainerPlan]]:
    """Containers that were planned, of which nothing new can be known. (Whoever removes a plan removes the memory.)"""
    before = now.before
    if before is None or not now.seen <= before.seen:
        return
    for pod, container, plan in now.live:
        then = before.plans.get(pod.name)
        previous = None if then is None else then.container(container)
        is_same = before.facts.get(pod.name) == now.facts[pod.name] and pod.name != now.story.tampered
        if previous is not None and is_same and previous.reason not in NOT_YET_PLANNED:
            yield pod, container, plan, previous


def generations_rise_with_changes(now: AtRest) -> Iterator[str]:
    """And with nothing else."""
    for name, plan in now.plans.items():
        then = None if now.before is None else now.before.plans.get(name)
        if then is None or then.pod_uid != plan.pod_uid or name == now.story.tampered:
            continue
        if plan.generation < then.generation or (plan.generation == then.generation) != (plan == then):
            yield f"{name}: generation {then.generation} is followed by {plan.generation}"


def pools_float_beside_all_pins(now: AtRest) -> Iterator[str]:
    """A core is free for all pools once its holder is gone."""
    held = whole_cores(now.topology, frozenset(cpu for _, _, plan in now.live for cpu in plan.pinned))
    for pod, container, plan in now.asking:
        if plan.pool_cpus != ((plan.mask - held) or (plan.mask - plan.pinned)):
            yield f"{pod.name} {container} floats on {format_cpu_list(plan.pool_cpus)} beside {format_cpu_list(held)}"


def patches_stay_within_the_fence(now: AtRest) -> Iterator[str]:
    """Nothing but our annotations and the label, of the pod that was meant."""
    for request in now.story.node.api.requests_of("PATCH"):
        metadata = request.body["metadata"]
        foreign = [key for key in metadata.get("annotations", {}) if not is_ours(key)]
        if request.body.keys() != {"metadata"} or metadata.keys() - {"uid", "annotations", "labels"} or foreign:
            yield f"{request.path}: {request.body}"


def a_restart_writes_nothing(now: AtRest) -> Iterator[str]:
    """The pods are the agent's whole memory."""
    settings = now.story.node.settings
    now.story.node.restart_agent(most_pinned_per_pod=settings.most_pinned_per_pod)
    for request in now.story.node.turn():
        yield f"{request.path}: {request.body}"


RULES: tuple[Callable[[AtRest], Iterator[str]], ...] = (
    pods_that_do_not_ask_carry_nothing_of_ours,
    pods_that_ask_carry_their_plan,
    plans_fit_the_published_schema,
    cores_are_held_once,
    plans_are_whole,
    plans_follow_what_was_told,
    pins_are_sticky,
    plans_change_only_by_what_is_seen,
    generations_rise_with_changes,
    pools_float_beside_all_pins,
    patches_stay_within_the_fence,
    a_restart_writes_nothing,
)
