"""What the agent of a pod's node says about the pod's plan, or the sentence why it says nothing and what helps.

The plan on the pod is always explained; what comes from here is added to it, and never delays it for long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from ..kube.errors import ForbiddenError, KubeError, NotFoundError
from ..planning.agentanswer import EXPLANATION_VERSION, PodExplained
from ..process.pages import EXPLAIN_PAGE
from .agents import Agent, NoAnswerError, NoAnswerNowError, agents_of, ask_agent, ask_url, no_right, not_found

if TYPE_CHECKING:
    from ..kube.client import KubeClient


@dataclass(frozen=True, slots=True)
class AskedPod:
    """Which pod an agent is asked about, and which plan stands on it (generation 0: none)."""

    namespace: str
    name: str
    uid: str
    node: str
    generation: int


@dataclass(frozen=True, slots=True)
class AgentsPart:
    """What the agent says; None where it says nothing that is of use, and then one sentence why, and what helps."""

    explained: PodExplained | None
    trouble: str = ""


class _NothingToAddError(Exception):
    """The agent's part is missing; the text is the sentence."""


def part_of_cluster(client: KubeClient, agent_namespace: str, pod: AskedPod) -> AgentsPart:
    """The part of the agent on the pod's node, asked through the API server's proxy.

    It takes the rights to list pods and to get pods/proxy in the agents' namespace.
    """
    try:
        agent = _agent_of(client, agent_namespace, pod.node)
        answer = _answer_of(client, agent, pod)
        return AgentsPart(_judged(f"the agent {agent.name}", answer, pod))
    except _NothingToAddError as error:
        return _nothing(error)


def part_of_url(url: str, pod: AskedPod) -> AgentsPart:
    """The part of the agent whose page /explain is at this URL.

    Raises:
        CliError: it is no URL.
    """
    full = f"{url}{'&' if '?' in url else '?'}{urlencode(_query(pod))}"
    try:
        return AgentsPart(_judged(f"the agent at {url}", ask_url(full, EXPLAIN_PAGE), pod))
    except NoAnswerNowError as error:
        return _nothing(f"the agent cannot be asked now: {error}; ask again in a moment")
    except NoAnswerError as error:
        return _nothing(
            f"the agent cannot be asked: {error}; give the URL of the page /{EXPLAIN_PAGE} of its node's agent"
        )
    except _NothingToAddError as error:
        return _nothing(error)


def _nothing(trouble: object) -> AgentsPart:
    """No part, and why; in one line, whatever others wrote into it."""
    return AgentsPart(None, " ".join(str(trouble).split()))


def _agent_of(client: KubeClient, namespace: str, node: str) -> Agent:
    try:
        agents = agents_of(client, namespace, node)
    except ForbiddenError as error:
        raise _NothingToAddError(no_right(f"the agent of node {node}", error, namespace)) from error
    except KubeError as error:
        raise _NothingToAddError(f"the agent of node {node} was not asked: {error}; ask again in a moment") from error
    if not agents:
        raise _NothingToAddError(
            f"there is no cpuplan agent on node {node} in namespace {namespace}; name the release's namespace with "
            "--agent-namespace, or let the DaemonSet run there"
        )
    # While one agent's pod replaces another there are two.
    return max(agents, key=lambda agent: agent.is_ready)


def _answer_of(client: KubeClient, agent: Agent, pod: AskedPod) -> dict[str, Any]:
    try:
        return ask_agent(client, agent, EXPLAIN_PAGE, _query(pod))
    except ForbiddenError as error:
        raise _NothingToAddError(no_right(f"the agent {agent.name}", error, agent.namespace)) from error
    except NotFoundError as error:
        raise _NothingToAddError(not_found(agent, error, EXPLAIN_PAGE)) from error
    except KubeError as error:
        raise _NothingToAddError(
            f"the agent {agent.name} cannot be asked: {error}; ask again in a moment, or see its log"
        ) from error


def _query(pod: AskedPod) -> dict[str, str]:
    return {"namespace": pod.namespace, "pod": pod.name}


def _judged(who: str, answer: Any, pod: AskedPod) -> PodExplained:
    """The answer, where it is one about this very pod and about no older plan than the pod shows."""
    explained = _parsed(who, answer)
    wrong = ""
    if explained.node != pod.node:
        wrong = f"{who} is that of node {explained.node}, the pod is on {pod.node}; ask the agent there"
    elif not explained.uid:
        wrong = f"{who} does not know the pod: {'; '.join(explained.notes)}; ask again in a moment"
    elif explained.uid != pod.uid:
        wrong = f"{who} speaks of another pod of that name, with the UID {explained.uid}; ask again in a moment"
    elif 0 < explained.generation < pod.generation:
        wrong = (
            f"{who} speaks of generation {explained.generation} of the plan, the pod shows {pod.generation}; ask again "
            "in a moment"
        )
    if wrong:
        raise _NothingToAddError(wrong)
    return explained


def _parsed(who: str, answer: Any) -> PodExplained:
    version = answer.get("version") if isinstance(answer, dict) else None
    if version != EXPLANATION_VERSION:
        raise _NothingToAddError(
            f"{who} answers in version {version!r}, this command understands version {EXPLANATION_VERSION}; use a "
            "cpuplan of the agent's version"
        )
    try:
        return PodExplained.from_document(answer)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _NothingToAddError(
            f"the answer of {who} cannot be read, a field is missing or malformed: {error!r}; use a cpuplan of the "
            "agent's version"
        ) from error
