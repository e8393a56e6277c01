"""Whether a plan that stands on a pod still answers what the pod asks: pins move only for a reason of the pod's own."""

from __future__ import annotations

from ..model import reasons
from ..model.podplan import ContainerPlan
from ..model.request import DeploymentRequest
from .setting import OFF

# Reasons that say what the agent did not know then, not what the ledger decided.
_NOT_YET_PLANNED = frozenset({reasons.WAITING_FOR_DEVICES, reasons.DEVICE_UNKNOWN, reasons.NO_DEVICE})


def holds_still(request: DeploymentRequest) -> bool:
    """Whether the plan on the pod answers this very request, the quota aside.

    What cannot be seen is not known to have changed: while the kubelet restarts, no devices; while a driver does,
    the same devices in no known place.
    """
    previous = request.previous
    if previous is None or previous.setting != request.setting:
        return False
    if is_waiting(request):
        return previous.reason != reasons.WAITING_FOR_DEVICES
    if previous.reason in _NOT_YET_PLANNED or previous.mask != request.mask:
        return False
    # Sets: devices come in the order of their addresses, and without those in another one.
    if set(previous.devices) != set(request.devices):
        return False
    if lacks_places(request):
        return len(previous.workers) == len(request.workers)
    return request.refusal is None and [w.address for w in previous.workers] == [w.address for w in request.workers]


def is_waiting(request: DeploymentRequest) -> bool:
    """Whether the container's devices cannot be seen now."""
    return request.refusal is not None and request.refusal.reason == reasons.WAITING_FOR_DEVICES


def lacks_places(request: DeploymentRequest) -> bool:
    """Whether all that speaks against the request, if anything does, is a device without an address."""
    if request.refusal is not None and request.refusal.reason != reasons.DEVICE_UNKNOWN:
        return False
    return any(worker.device_id is not None and worker.address is None for worker in request.workers)


def is_sound(plan: ContainerPlan) -> bool:
    """Whether a plan read from a pod is one that a ledger makes; anything else is planned anew.

    Pinned plans pin a result CPU and every worker, each on CPUs of its own, and leave a CPU of the mask;
    all other plans pin nothing.
    """
    if plan.reason not in reasons.OF_PLANS or (plan.reason == reasons.OFF) != (plan.setting == OFF):
        return False
    if plan.reason != reasons.PINNED:
        return not plan.pinned
    sizes = [len(worker.cpus) for worker in plan.workers]
    return plan.result is not None and all(sizes) and sum(sizes) + 1 == len(plan.pinned) and plan.pinned < plan.mask


def is_for_other_rules(previous: ContainerPlan, most_pinned_per_pod: int | None) -> bool:
    """Whether a plan pins nothing for a rule of the administrator's that may be another by now.

    That is a bound of another height, or CPUs that were all withheld: only there are withheld CPUs in the mask.
    """
    if previous.reason == reasons.OVER_SHARE:
        return previous.most_pinned != most_pinned_per_pod
    return not previous.pinned and not previous.withheld_cpus.isdisjoint(previous.mask)
