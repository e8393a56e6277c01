"""The agents' own pages (`/audit`, `/explain`), asked through the API server's proxy, or by their URLs.

Through the API server it takes the rights to list pods and to get pods/proxy in the agents' namespace.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

from ..kube.errors import ForbiddenError, NotFoundError
from ..kube.paths import pod_path, pods_path
from .errors import CliError

if TYPE_CHECKING:
    from ..kube.client import KubeClient

AGENT_NAMESPACE = "cpuplan"
"""Where the chart's documentation installs the agents."""

AGENT_SELECTOR = "app.kubernetes.io/name=cpuplan,app.kubernetes.io/component=agent"
"""The chart's labels of the agents' pods."""

DEFAULT_PORT = 9465

LIMIT_SECONDS = 10.0
"""Longest silence of an agent: it answers from memory, within milliseconds."""

MOST_BYTES = 8 << 20
"""An audit has some 500 bytes per container, an explanation at most some hundred kilobytes."""


class NoAnswerError(CliError):
    """A URL gave no answer, or none that can be read."""


class NoAnswerNowError(NoAnswerError):
    """The agent has no answer at this moment: it has just started, or answers others."""


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent's pod.

    Attributes:
        node: whose pods it plans; None while it is on none.
        port: where its pages are.
        is_ready: its readiness probe succeeds.
    """

    namespace: str
    name: str
    node: str | None
    port: int
    is_ready: bool


def agents_of(client: KubeClient, namespace: str, node: str | None) -> list[Agent]:
    """The agents of a release, or those on one node.

    Raises:
        KubeError: they cannot be listed.
    """
    fields = f"spec.nodeName={node}" if node else ""
    pods = client.list_objects(pods_path(namespace), field_selector=fields, label_selector=AGENT_SELECTOR).items
    return [_agent(namespace, pod) for pod in pods]


def ask_agent(client: KubeClient, agent: Agent, page: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What an agent answers on one of its pages.

    Raises:
        KubeError: there is no answer, or one that is no JSON object.
    """
    path = f"{pod_path(agent.namespace, agent.name)}:{agent.port}/proxy/{page}"
    return client.get(path, query, read_timeout_seconds=LIMIT_SECONDS)


def rights_for(namespace: str) -> str:
    """What asking the agents of a namespace takes, as in `it takes ...`."""
    rights = f"the rights to list pods and to get pods/proxy in namespace {namespace}"
    return f"{rights}, as the role in docs/audit.md gives them"


def no_right(who: str, error: ForbiddenError, namespace: str) -> str:
    """Why an agent was not asked whom the API server does not let this user ask."""
    return f"{who} was not asked: {error.message}; it takes {rights_for(namespace)}"


def not_found(agent: Agent, error: NotFoundError, page: str) -> str:
    """What a 404 means: that of the API server has a reason, that of an agent is a line of text."""
    if error.reason:
        return f"the agent {agent.name} is gone; ask again in a moment, when another has taken its place"
    return (
        f"the agent {agent.name} has no page /{page}: it is older than this command, or runs with "
        f"--{page}=off; update it, or turn the page on"
    )


def ask_url(url: str, page: str) -> Any:
    """What is answered at the URL of an agent's page.

    Raises:
        CliError: it is no URL.
        NoAnswerNowError: asking again helps.
        NoAnswerError: there is no answer, or one that is no JSON.
    """
    if not url.startswith(("http://", "https://")):
        raise CliError(f"{url!r} is no URL of an agent; expected such as http://10.0.0.7:{DEFAULT_PORT}/{page}")
    try:
        with urllib.request.urlopen(url, timeout=LIMIT_SECONDS) as answer:  # noqa: S310 - http(s), checked above
            return json.loads(answer.read(MOST_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            why = error.read(200).decode("utf-8", "replace").strip() or error.reason
        kind = NoAnswerNowError if error.code == HTTPStatus.SERVICE_UNAVAILABLE else NoAnswerError
        raise kind(f"{url} was answered with {error.code}: {why}") from error
    except (OSError, HTTPException, ValueError, RecursionError) as error:
        why = " ".join(str(getattr(error, "reason", error)).split())
        raise NoAnswerError(f"{url} cannot be read: {why}") from error


def _agent(namespace: str, pod: Mapping[str, Any]) -> Agent:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    ports = [port for container in spec.get("containers") or () for port in container.get("ports") or ()]
    conditions = status.get("conditions") or ()
    return Agent(
        namespace=namespace,
        name=str(pod["metadata"]["name"]),
        node=spec.get("nodeName") or None,
        port=next((int(port["containerPort"]) for port in ports if port.get("name") == "metrics"), DEFAULT_PORT),
        is_ready=any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions),
    )
