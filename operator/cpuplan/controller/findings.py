"""What is missing or wrong at a planned pod, as sentences: pure, from what was observed and the time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ..kube import injected
from .observed import ObservedPod
from .startup import AgentPod

_FAILED_OUTCOMES = frozenset({"fail", "stuck"})


class FindingKind(StrEnum):
    """The kinds of findings; the value is the Event's reason and the metric's label."""

    NO_PLAN = "NoPlan"
    INVALID_PLAN = "InvalidPlan"
    STALE_PLAN = "StalePlan"
    NOT_INJECTED = "InitContainerMissing"
    NOT_STARTED = "InitContainerWaiting"
    SELFTEST_FAILED = "SelfTestFailed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that somebody should know about a pod.

    Attributes:
        text: the sentence; it stays the same as long as the finding does.
        key: tells two findings of one kind at one pod apart (another generation, another verdict).
    """

    kind: FindingKind
    text: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What has to be known beside the pod itself.

    Attributes:
        now: seconds since the epoch.
        plan_wait_seconds: how long after scheduling a plan may take.
        boot_ids: boot id by node name, as far as asked for.
        agents: the agent's pod by node, whether it runs or not; None when that is not known.
        init_wait_seconds: how long the injected init container waits for a plan.
    """

    now: float
    plan_wait_seconds: float
    boot_ids: Mapping[str, str]
    agents: Mapping[str, AgentPod] | None
    init_wait_seconds: float = 15


def waits_for_plan(pod: ObservedPod) -> bool:
    """Whether an agent still owes this pod its first answer."""
    return pod.setting is not None and pod.status is None and bool(pod.node) and not _is_over(pod)


def plan_due_at(pod: ObservedPod, plan_wait_seconds: float) -> float:
    """When a pod that waits for a plan is overdue."""
    known = (pod.created_at, pod.scheduled_at, pod.asked_at)
    return max(time for time in known if time is not None) + plan_wait_seconds


def is_overdue(pod: ObservedPod, now: float, plan_wait_seconds: float) -> bool:
    """Whether a plan should have been there by now."""
    return waits_for_plan(pod) and now >= plan_due_at(pod, plan_wait_seconds)


def is_of_other_boot(pod: ObservedPod, boot_id: str) -> bool:
    """Whether the pod's own plan was made in another boot than `boot_id`; False where that is empty: not known."""
    plan = pod.plan
    return plan is not None and plan.pod_uid == pod.uid and boot_id not in ("", plan.boot_id)


def findings_of(pod: ObservedPod, around: Surroundings) -> list[Finding]:
    """Everything that is to be said about one pod; nothing about pods that ended or are being deleted."""
    if _is_over(pod):
        return []
    candidates = (
        _no_plan(pod, around),
        _invalid_plan(pod),
        _stale_plan(pod, around),
        _not_injected(pod),
        _not_started(pod),
        _selftest_failed(pod),
    )
    return [finding for finding in candidates if finding is not None]


def count_by_kind(found: Iterable[Finding]) -> dict[FindingKind, int]:
    """How many findings there are of each kind, zero included."""
    counts = dict.fromkeys(FindingKind, 0)
    for finding in found:
        counts[finding.kind] += 1
    return counts


def _is_over(pod: ObservedPod) -> bool:
    return pod.has_ended or pod.deletion_due is not None


def _no_plan(pod: ObservedPod, around: Surroundings) -> Finding | None:
    if not is_overdue(pod, around.now, around.plan_wait_seconds):
        return None
    waited = f"no plan {around.plan_wait_seconds:g} s after the pod was scheduled or annotated"
    has_wait = pod.injection.is_there and pod.start_failure is None
    costs = f"; its init container waits {around.init_wait_seconds:g} s at every start" if has_wait else ""
    if around.agents is None:
        return Finding(FindingKind.NO_PLAN, f"{waited}: is a cpuplan agent running on node {pod.node}?{costs}")
    agent = around.agents.get(pod.node)
    if agent is None:
        return Finding(
            FindingKind.NO_PLAN,
            f"{waited}: no cpuplan agent pod runs on node {pod.node}; let the agent's DaemonSet select the node{costs}",
            key="no-agent",
        )
    if agent.trouble:
        return Finding(
            FindingKind.NO_PLAN,
            f"{waited}: the cpuplan agent pod {agent.namespace}/{agent.name} of node {pod.node} does not run "
            f"({agent.trouble}); kubectl describe pod -n {agent.namespace} {agent.name} says why{costs}",
            key=f"{agent.name} {agent.trouble}",
        )
    return Finding(FindingKind.NO_PLAN, f"{waited}: see the log of the cpuplan agent on node {pod.node}{costs}")


def _invalid_plan(pod: ObservedPod) -> Finding | None:
    if not pod.plan_defect:
        return None
    return Finding(FindingKind.INVALID_PLAN, f"{pod.plan_defect}; restart the agent on node {pod.node} to rewrite it")


def _stale_plan(pod: ObservedPod, around: Surroundings) -> Finding | None:
    if pod.plan is None:
        return None
    if pod.plan.pod_uid != pod.uid:
        return Finding(
            FindingKind.STALE_PLAN,
            f"the plan is for pod UID {pod.plan.pod_uid}, this pod's is {pod.uid}: it was copied with the manifest "
            f"and is not used; the agent on node {pod.node} has to replace it",
            key=pod.plan.pod_uid,
        )
    boot_id = around.boot_ids.get(pod.node, "")
    if not is_of_other_boot(pod, boot_id):
        return None
    return Finding(
        FindingKind.STALE_PLAN,
        f"the plan is from boot {pod.plan.boot_id} of node {pod.node}, which now runs boot {boot_id}: the agent "
        "there has not planned since the restart",
        key=boot_id,
    )


def _not_injected(pod: ObservedPod) -> Finding | None:
    if not pod.injection.was_due or (pod.setting or "off") == "off":
        return None
    cause = pod.injection.obstacle or (
        "the injection policy did not act: is it installed, and is the namespace one that it serves?"
    )
    return Finding(
        FindingKind.NOT_INJECTED,
        f"created with step_thread_core but without the init container and the plan volume ({cause}); "
        "the plan is in the annotations only",
    )


def _not_started(pod: ObservedPod) -> Finding | None:
    failure = pod.start_failure
    if failure is None:
        return None
    if failure.is_about_image:
        sentence = (
            f"the init container {injected.NAME} waits: {failure.reason} of {failure.image}; check the chart's "
            "image.repository and image.tag, which the agents run too, and that the node may pull it (the chart's "
            "imagePullSecrets are not those of this pod); then create the pod anew, or correct it with: kubectl set "
            f"image -n {pod.namespace} pod/{pod.name} {injected.NAME}=IMAGE"
        )
    else:
        sentence = (
            f"the init container {injected.NAME} waits: {failure.reason}; kubectl describe pod -n {pod.namespace} "
            f"{pod.name} has the kubelet's words, and a pod created without step_thread_core has no such container"
        )
    return Finding(FindingKind.NOT_STARTED, sentence, key=f"{failure.reason} {failure.image}")


def _selftest_failed(pod: ObservedPod) -> Finding | None:
    if pod.verdict is None or pod.verdict.outcome not in _FAILED_OUTCOMES:
        return None
    what = "is stuck: the device does not observe host stores" if pod.verdict.outcome == "stuck" else "failed"
    fault = f" (fault {pod.verdict.fault})" if pod.verdict.fault else ""
    if pod.verdict.fault == injected.CRASHED:
        sentence = (
            f"the init container {injected.NAME} ended without a verdict of the hostflag self-test; see its exit code "
            "(137 is often its memory limit) and its log"
        )
    else:
        sentence = (
            f"the hostflag self-test {what}{fault}; see the annotation cpuplan.dev/hostflag and the termination "
            "message of the container that ran it"
        )
    return Finding(
        FindingKind.SELFTEST_FAILED,
        sentence,
        key=f"{pod.verdict.outcome} {pod.verdict.fault}",
    )
