"""What the operator knows of nodes: that they exist, which boot they run, and whether an agent is there.

Asked, not watched: node objects are large and change all the time. A full listing every few minutes finds
restarts; anything that a pod's plan contradicts is asked for at once, so that nothing is reported from old
knowledge.
"""

import logging
from collections.abc import Iterable, Mapping

from ..kube.answers import JsonObject
from ..kube.client import KubeClient
from ..kube.errors import ForbiddenError
from ..kube.paths import pods_path
from .findings import is_of_other_boot
from .observed import ObservedPod
from .startup import AgentPod, agent_pods

LOG = logging.getLogger(__name__)

NODES_PATH = "/api/v1/nodes"

CHUNK_SIZE = 100
"""Nodes per request: a node with many images listed has tens of kilobytes."""

ASK_AGAIN_SECONDS = 30.0
"""A node that contradicts a plan is asked for at most this often: an agent needs about as long after a boot."""

MOST_QUESTIONS_PER_PASS = 50
"""Nodes asked for one by one in one pass; after a listing only new nodes are left to ask for."""

AGENTS_KNOWN_SECONDS = 60.0
"""How long an answer about agent pods is good for; asked only while some pod waits in vain."""


class NodeKnowledge:
    """Nodes and agents as far as asked. Call from one thread."""

    def __init__(self, client: KubeClient, *, namespace: str, agent_selector: str) -> None:
        self._client = client
        self._namespace = namespace
        self._agent_selector = agent_selector
        self._boot_ids: dict[str, str] = {}
        self._gone: set[str] = set()
        self._asked_at: dict[str, float] = {}
        self._agents: Mapping[str, AgentPod] = {}
        self._agents_asked_at: float | None = None
        self._may_read_nodes = True

    @property
    def boot_ids(self) -> Mapping[str, str]:
        """Boot id by node name, of nodes that exist; empty where the node does not say."""
        return self._boot_ids

    def is_gone(self, node: str) -> bool:
        """Whether the API server said that there is no such node."""
        return node in self._gone

    def list_all(self) -> None:
        """Learns every node anew.

        Raises:
            KubeError: the API server did not answer; what was known stays.
        """
        if not self._may_read_nodes:
            return
        try:
            found = dict(map(_name_and_boot_id, self._client.each_object(NODES_PATH, chunk_size=CHUNK_SIZE)))
        except ForbiddenError as error:
            self._without_nodes(error)
            return
        self._boot_ids = found
        self._gone.clear()
        self._asked_at.clear()

    def ask_about(self, pods: Iterable[ObservedPod], now: float) -> None:
        """Asks for the nodes of `pods` that are unknown or seem to run another boot than the plan's.

        Raises:
            KubeError: the API server did not answer.
        """
        if not self._may_read_nodes:
            return
        doubtful = {pod.node for pod in pods if pod.node and self._contradicts(pod)}
        due = [node for node in sorted(doubtful) if now - self._asked_at.get(node, float("-inf")) >= ASK_AGAIN_SECONDS]
        # Nothing is said from what a plan contradicts, also where the answer has to wait or never comes.
        for node in due:
            self._boot_ids.pop(node, None)
        for node in due[:MOST_QUESTIONS_PER_PASS]:
            try:
                # A list of one: the right to list is all that the operator has, and needs.
                answer = self._client.list_objects(NODES_PATH, field_selector=f"metadata.name={node}")
            except ForbiddenError as error:
                self._without_nodes(error)
                return
            self._asked_at[node] = now
            self._boot_ids.update(map(_name_and_boot_id, answer.items))
            if node in self._boot_ids:
                self._gone.discard(node)
            else:
                self._gone.add(node)

    def agents(self, now: float) -> Mapping[str, AgentPod]:
        """The agent's pod by node, whether it runs or not.

        Raises:
            KubeError: the API server did not answer.
        """
        if self._agents_asked_at is None or now - self._agents_asked_at >= AGENTS_KNOWN_SECONDS:
            found = self._client.each_object(pods_path(self._namespace), label_selector=self._agent_selector)
            self._agents = agent_pods(found)
            self._agents_asked_at = now
        return self._agents

    def _contradicts(self, pod: ObservedPod) -> bool:
        known = self._boot_ids.get(pod.node)
        return known is None or is_of_other_boot(pod, known)

    def _without_nodes(self, error: ForbiddenError) -> None:
        self._may_read_nodes = False
        self._boot_ids.clear()
        LOG.warning("restarted and deleted nodes go unnoticed: no right to read nodes error=%r", str(error))


def _name_and_boot_id(node: JsonObject) -> tuple[str, str]:
    info = (node.get("status") or {}).get("nodeInfo") or {}
    return str(node["metadata"]["name"]), str(info.get("bootID", ""))
