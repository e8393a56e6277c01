"""Plans as pod annotations, both ways: the only place that knows their keys and forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from ..model.cpulist import format_cpu_list
from ..model.podplan import ContainerPlan, PodPlan, Status

SETTING: Final = "step_thread_core"
PREFIX: Final = "cpuplan.dev/"

# Keys of the users.
WORKERS: Final = PREFIX + "workers"
CONTAINER: Final = PREFIX + "container"
SELFTEST: Final = PREFIX + "selftest"
USER_KEYS: Final = frozenset({SETTING, WORKERS, CONTAINER, SELFTEST})

# Keys of the agent.
STATUS: Final = PREFIX + "status"
STEP_CPUS: Final = PREFIX + "step-cpus"
RESULT_CPU: Final = PREFIX + "result-cpu"
USABLE_CPUS: Final = PREFIX + "usable-cpus"
WHY: Final = PREFIX + "why"
PLAN: Final = PREFIX + "plan"
HOSTFLAG: Final = PREFIX + "hostflag"

MANAGED_LABEL: Final = PREFIX + "managed"
MANAGED_VALUE: Final = "true"
MANAGED_SELECTOR: Final = f"{MANAGED_LABEL}={MANAGED_VALUE}"
"""Selects planned pods on the server's side."""

MOST_BYTES: Final = 4096
"""All of our annotations of a pod together stay below this, so that no pod ever grows by us."""

HOSTFLAG_BYTES: Final = 512
"""Room that stays for the self-test's verdict, its key included, within MOST_BYTES."""

_MOST_SETTING_CHARACTERS = 80
"""The longest valid setting is a number of 60 digits and its sign (planning/setting.py)."""

_SENTENCE_LENGTHS = (160, 20)
"""Lengths to which sentences are cut, one after the other, where a plan of many workers would grow too large."""


def annotations_of(plan: PodPlan) -> dict[str, str]:
    """The annotations that publish a plan; a key is missing where it has nothing to say."""
    pinned = [(name, container) for name, container in plan.containers if container.pinned]
    texts = {
        STATUS: str(plan.status),
        STEP_CPUS: " ".join(f"{name}={_steps(c)}" for name, c in pinned if any(w.cpus for w in c.workers)),
        RESULT_CPU: " ".join(f"{name}={c.result}" for name, c in pinned if c.result is not None),
        USABLE_CPUS: " ".join(f"{name}={c.usable}" for name, c in plan.containers),
        WHY: _why(plan),
        PLAN: plan.to_json(),
    }
    return {key: text for key, text in texts.items() if text}


def plan_in(annotations: Mapping[str, str]) -> PodPlan | None:
    """The plan that the annotations publish; None where there is none.

    Raises:
        CpuPlanError: what stands there is no plan of this version.
    """
    text = annotations.get(PLAN)
    return None if text is None else PodPlan.from_json(text)


def next_plan(previous: PodPlan | None, plan: PodPlan) -> PodPlan:
    """The plan to publish after `previous`: the previous one itself where it says the same, however shortened.

    A plan too large for its place is shortened, what it pins is not: see `_shortenings`. What was cut once is planned
    as it was cut, and other sentences then have more room; that is no reason for another generation.
    """
    if previous is not None and any(shortened.says_the_same_as(previous) for shortened in _shortenings(plan)):
        return previous
    return replace(_fit(plan), generation=1 if previous is None else previous.generation + 1)


def changed_annotations(current: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    """The agent's keys to set or (None) to remove, so that `current` becomes `wanted`; empty where it is."""
    changes: dict[str, str | None] = {key: text for key, text in wanted.items() if current.get(key) != text}
    changes.update({key: None for key in current if is_ours(key) and key not in wanted})
    return changes


def is_ours(key: str) -> bool:
    """Whether only agents may write the annotation."""
    return key.startswith(PREFIX) and key not in USER_KEYS


def is_planned(annotations: Mapping[str, str]) -> bool:
    """Whether the pod asks for a plan (`off` included)."""
    return SETTING in annotations


def setting_of(annotations: Mapping[str, str]) -> str:
    """The user's `step_thread_core`, unparsed; `off` where there is none.

    Of a long text only the start, which is no valid setting either: the plan that answers it repeats it.
    """
    return annotations.get(SETTING, "off")[:_MOST_SETTING_CHARACTERS]


def _steps(plan: ContainerPlan) -> str:
    return ";".join(format_cpu_list(worker.cpus) for worker in plan.workers)


def _why(plan: PodPlan) -> str:
    """The containers' sentences, each followed by that of a shortage, but where an error has to be corrected first."""
    sentences = [
        (name, c.why if c.status is Status.ERROR else "; ".join(filter(None, (c.why, c.shortage))))
        for name, c in plan.containers
    ]
    return sentences[0][1] if len(sentences) == 1 else "; ".join(f"{name}: {text}" for name, text in sentences)


def _size_bytes(plan: PodPlan) -> int:
    return sum(len(key) + len(text.encode()) for key, text in annotations_of(plan).items())


def _fit(plan: PodPlan) -> PodPlan:
    """The plan, shortened as far as needed: 16 workers in four containers fit.

    A plan that is still too large (many containers on masks of many pieces) is published as it then is: pins
    count for more than the room, and the agents' fence (charts/cpuplan) lets 64 KiB pass.
    """
    fitted = plan
    for fitted in _shortenings(plan):
        if _size_bytes(fitted) <= MOST_BYTES - HOSTFLAG_BYTES:
            break
    return fitted


def _shortenings(plan: PodPlan) -> Iterator[PodPlan]:
    """The plan as it is, then ever shorter.

    1. The workers' sentences go.
    2. The containers' sentences lose their ends.
    3. The workers' device ids go, which the container's `devices` still list.
    4. The containers' sentences become very short, then that of a shortage goes.
    """
    yield plan
    long, short = _SENTENCE_LENGTHS
    for shorten in (_without_worker_sentences, _cut_to(long), _without_worker_ids, _cut_to(short), _without_shortage):
        plan = replace(plan, containers=tuple((name, shorten(container)) for name, container in plan.containers))
        yield plan


def _without_worker_sentences(plan: ContainerPlan) -> ContainerPlan:
    return replace(plan, workers=tuple(replace(worker, why="") for worker in plan.workers))


def _without_worker_ids(plan: ContainerPlan) -> ContainerPlan:
    return replace(plan, workers=tuple(replace(worker, uuid=None) for worker in plan.workers))


def _without_shortage(plan: ContainerPlan) -> ContainerPlan:
    return replace(plan, shortage="")


def _cut_to(length: int) -> Callable[[ContainerPlan], ContainerPlan]:
    def shortened(sentence: str) -> str:
        return sentence if len(sentence) <= length else sentence[: length - 1] + "…"

    def cut(plan: ContainerPlan) -> ContainerPlan:
        return replace(plan, why=shortened(plan.why), shortage=shortened(plan.shortage))

    return cut
