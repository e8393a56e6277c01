"""What of a plan is worth an Event when it changes, and what changed since it was last seen."""

import json
from collections.abc import Iterable, Iterator

from ..model import reasons
from ..model.errors import CpuPlanError
from ..model.podplan import PodPlan, Status
from .observed import SHORTAGE, ObservedPod, PlanSeen, plan_seen

PlanFacts = tuple[tuple[str, str], ...]
"""Names and values, in the plan's order: status, and of each container what it pins and may use, and the reason.

Where pools float is not among them: that changes as neighbours come and go, and the pod has nothing to do for it.
"""


def facts_of(pod: ObservedPod) -> PlanFacts | None:
    """What the pod's plan says; None without a plan of its own.

    The sentence counts where no plan can be made: there it names the fault.
    """
    if pod.status is None or (pod.plan is not None and pod.plan.pod_uid != pod.uid):
        return None
    return _facts(pod.status, pod.plan, pod.why)


def facts_in_index(text: str) -> Iterator[tuple[str, PlanFacts]]:
    """Pod UID and facts of each plan in one text of the index; what is no plan is left out."""
    try:
        entries = list(json.loads(text).values())
    except (ValueError, AttributeError, RecursionError):
        return
    for entry in entries:
        try:
            plan = PodPlan.from_json(json.dumps(entry["plan"]))
            yield plan.pod_uid, _facts(str(entry["status"]), plan_seen(plan), str(entry["why"]))
        except (CpuPlanError, KeyError, TypeError, RecursionError):
            continue


def _facts(status: str, plan: PlanSeen | None, why: str) -> PlanFacts:
    is_sentence_needed = plan is None or status == Status.ERROR
    return (("status", status), *(plan.facts if plan else ()), *([("why", why)] if is_sentence_needed else []))


def is_waiting(facts: PlanFacts) -> bool:
    """Whether the plan only said that devices are awaited."""
    return any(value == reasons.WAITING_FOR_DEVICES for _, value in facts)


def has_shortage(facts: PlanFacts) -> bool:
    """Whether a container's CPU limit is too small for its workers."""
    return any(name.endswith(SHORTAGE) for name, _ in facts)


def differences(before: PlanFacts, now: PlanFacts) -> str:
    """What changed, for people: `engine's usable CPUs 32 → 16; …`; the sentence is told anyway."""
    old, new = dict(before), dict(now)
    names = [name for name in dict.fromkeys((*old, *new)) if name != "why" and old.get(name) != new.get(name)]
    return "; ".join(f"{name} {old.get(name) or 'none'} → {new.get(name) or 'none'}" for name in names)


class PlanHistory:
    """The facts of each pod's plan before those it has now. A restart forgets all that the index does not say."""

    def __init__(self) -> None:
        self._now: dict[str, PlanFacts] = {}
        self._before: dict[str, PlanFacts] = {}

    def remember(self, uid: str, facts: PlanFacts) -> None:
        """Notes what a pod's plan said when an earlier process saw it last."""
        self._now[uid] = facts

    def before(self, pod: ObservedPod) -> PlanFacts | None:
        """What the pod's plan said before the last change; None where it is the first that was seen."""
        facts = facts_of(pod)
        last = self._now.get(pod.uid)
        if facts is not None and facts != last:
            self._now[pod.uid] = facts
            if last is not None:
                self._before[pod.uid] = last
        return self._before.get(pod.uid)

    def keep_only(self, uids: Iterable[str]) -> None:
        """Forgets the pods that are gone."""
        for uid in self._now.keys() - set(uids):
            del self._now[uid]
            self._before.pop(uid, None)
