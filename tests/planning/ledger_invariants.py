"""What every round of a ledger must keep; each invariant is one function and is broken on purpose by a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations

from cpuplan.model.cpulist import format_cpu_list
from cpuplan.model.errors import CpuPlanError
from cpuplan.model.plan import usable_count
from cpuplan.model.reasons import CONFLICT, OVER_SHARE, PINNED
from cpuplan.model.request import DeploymentRequest
from cpuplan.planning.cores import Geometry
from cpuplan.planning.deployment import plan_deployment
from tests.wholecores import whole_cores

from .node_history import PlanNode, Round


def violations(done: Round, plan: PlanNode) -> list[str]:
    """One sentence, beginning with the invariant's name, per violation of a round; `plan` is the ledger judged."""
    found = [f"{check.__name__}: {what}" for check in INVARIANTS for what in check(done)]
    found += [f"{check.__name__}: {what}" for check in INVARIANTS_OF_PLANNING for what in check(done, plan)]
    return found


def pinned_cores_never_overlap(done: Round) -> Iterator[str]:
    """Whole cores: a neighbour never gets a sibling thread."""
    for (key, plan), (other_key, other) in combinations(done.plans.items(), 2):
        shared = whole_cores(done.topology, plan.pinned) & other.pinned
        if shared:
            yield f"{key} and {other_key} share {format_cpu_list(shared)}"


def plans_are_whole(done: Round) -> Iterator[str]:
    """Every worker and the result threads are pinned on CPUs of their own within the mask, or nothing is."""
    for key, plan in done.plans.items():
        sizes = [len(worker.cpus) for worker in plan.workers]
        is_whole = all(sizes) and plan.result is not None and sum(sizes) + 1 == len(plan.pinned)
        if (plan.reason == PINNED) != bool(plan.pinned) or (plan.pinned and not is_whole):
            yield f"{key} is {plan.reason} with {sizes} and {plan.result}"
        if not plan.pinned <= plan.mask:
            yield f"{key} pins {format_cpu_list(plan.pinned)} outside {format_cpu_list(plan.mask)}"


def a_deployment_alone_gets_its_deployment_plan(done: Round) -> Iterator[str]:
    """Unless an administrator's bound or the plan on the pod says otherwise."""
    if len(done.requests) != 1 or done.requests[0].previous or done.requests[0].refusal:
        return
    request = done.requests[0]
    plan = done.plans[request.key]
    addresses = [worker.address for worker in request.workers]
    try:
        alone = plan_deployment(
            request.setting,
            addresses,
            mask=request.mask,
            usable=usable_count(len(request.mask), request.quota),
            geometry=Geometry(done.topology.gpus_like(addresses), done.topology.siblings_of),
        )
    except CpuPlanError as error:
        # What follows says why the CPU is not in the mask.
        if plan.reason != error.reason or not plan.why.startswith(str(error)):
            yield f"{plan.reason} ({plan.why}) instead of {error.reason} ({error})"
        return
    if plan.reason != OVER_SHARE and plan.as_cpu_plan() != alone:
        yield f"{plan.as_cpu_plan()} instead of {alone}"


def pins_are_sticky(done: Round) -> Iterator[str]:
    """Others coming and going never move a deployment that did not change itself.

    Of two plans on pods that pin one core (no ledger wrote them) one has to give way.
    """
    for request in done.requests:
        before, previous = done.before.get(request.key), request.previous
        if previous is None or before != replace(request, previous=None) or _is_contested(request, done):
            continue
        plan = done.plans[request.key]
        if (plan.pinned, plan.reason) != (previous.pinned, previous.reason):
            yield f"{request.key} moved from {previous.why} to {plan.why}"


def _is_contested(request: DeploymentRequest, done: Round) -> bool:
    claims = [other.previous.pinned for other in done.requests if other.previous and other.key != request.key]
    own = whole_cores(done.topology, request.previous.pinned) if request.previous else frozenset[int]()
    return any(own & claim for claim in claims)


def a_mask_is_never_pinned_whole(done: Round) -> Iterator[str]:
    """Unless plans that stay had already pinned all of it."""
    everything = frozenset(cpu for plan in done.plans.values() for cpu in plan.pinned)
    stayed = frozenset(cpu for request in _stayed(done) for cpu in done.plans[request.key].pinned)
    for request in done.requests:
        if request.mask and request.mask <= everything and not request.mask <= stayed:
            yield f"nothing of {request.key}'s mask {format_cpu_list(request.mask)} is left"


def pools_float_where_nobody_pins(done: Round) -> Iterator[str]:
    """A core is free for the pools at once when its holder has ended."""
    everything = frozenset(cpu for plan in done.plans.values() for cpu in plan.pinned)
    held = whole_cores(done.topology, everything)
    for key, plan in done.plans.items():
        if plan.pool_cpus != ((plan.mask - held) or (plan.mask - plan.pinned)):
            yield f"{key} floats on {format_cpu_list(plan.pool_cpus)}"


def a_number_that_is_held_is_an_error_naming_the_holder(done: Round) -> Iterator[str]:
    """A newcomer's explicit CPU whose core a plan that stays has pinned."""
    for request in done.requests:
        if request.previous is not None or request.refusal is not None or not request.setting.isdecimal():
            continue
        number, plan = int(request.setting), done.plans[request.key]
        core = done.topology.siblings_of(number) & request.mask
        names = [str(other) for other in _stayed(done) if done.plans[other.key].pinned & core]
        is_named = plan.reason == CONFLICT and any(name in plan.why for name in names)
        if number in request.mask and names and not is_named:
            yield f"{request.key} is {plan.reason} ({plan.why}) although {names} hold CPU {number}"


def _stayed(done: Round) -> list[DeploymentRequest]:
    """The deployments that kept what the plan on their pod pins."""
    return [
        request
        for request in done.requests
        if request.previous and done.plans[request.key].pinned == request.previous.pinned
    ]


def usable_cpus_follow_the_quota(done: Round) -> Iterator[str]:
    """The quota changes the pools and never the pins."""
    for request in done.requests:
        plan = done.plans[request.key]
        if plan.usable != usable_count(len(plan.mask), plan.quota):
            yield f"{request.key}: {plan.usable} of {len(plan.mask)} CPUs with a quota of {plan.quota}"
        if request.refusal is None and plan.quota != request.quota:
            yield f"{request.key}: planned with {plan.quota}, the quota is {request.quota}"


def newcomers_keep_to_the_share_of_a_pod(done: Round) -> Iterator[str]:
    """The bound of the administrator holds for what is newly pinned."""
    most = done.rules.most_pinned_per_pod
    pods = {request.pod.uid for request in done.requests}
    for uid in pods if most is not None else ():
        own = [request for request in done.requests if request.pod.uid == uid]
        total = sum(len(done.plans[request.key].pinned) for request in own)
        if most is not None and total > most and not any(request.previous for request in own):
            yield f"pod {uid} pins {total} of {most}"


def the_order_of_the_requests_does_not_matter(done: Round, plan: PlanNode) -> Iterator[str]:
    """Same cluster state, same plans."""
    if plan(tuple(reversed(done.requests)), done.topology, done.rules) != done.plans:
        yield "the reversed requests are planned otherwise"


def a_restart_changes_nothing(done: Round, plan: PlanNode) -> Iterator[str]:
    """The plans on the pods are the whole memory: planning once more publishes the same."""
    again = [replace(request, previous=done.plans[request.key]) for request in done.requests]
    for key, other in plan(again, done.topology, done.rules).items():
        if other != done.plans[key]:
            yield f"{key}: {done.plans[key]} became {other}"


INVARIANTS: tuple[Callable[[Round], Iterator[str]], ...] = (
    pinned_cores_never_overlap,
    plans_are_whole,
    a_deployment_alone_gets_its_deployment_plan,
    pins_are_sticky,
    a_mask_is_never_pinned_whole,
    pools_float_where_nobody_pins,
    a_number_that_is_held_is_an_error_naming_the_holder,
    usable_cpus_follow_the_quota,
    newcomers_keep_to_the_share_of_a_pod,
)
INVARIANTS_OF_PLANNING: tuple[Callable[[Round, PlanNode], Iterator[str]], ...] = (
    the_order_of_the_requests_does_not_matter,
    a_restart_changes_nothing,
)
