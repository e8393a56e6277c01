"""The agent process: parts put together, threads started, signals obeyed."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..host.affinity import PINNABLE
from ..host.nvml import NvmlAddresses
from ..host.override import OverrideFile, read_override
from ..kube.client import KubeClient, default_retries
from ..kube.connection import Connection, connect
from ..kube.errors import KubeConfigError, KubeError
from ..kube.podwatch import PodChange, PodWatch
from ..model.errors import HostReadError, OverrideError, OverrideMissingError
from ..planning.ledger import NodeRules
from ..process.endpoints import Answers, Document, ListenError, Query, served
from ..process.flags import EXIT_MISCONFIGURED
from ..process.pages import AUDIT_PAGE, EXPLAIN_PAGE
from .auditing import AuditMetrics, NodeAuditor
from .claims import ClaimReader
from .explaining import NodeExplainer
from .loop import NodeAgent, NodeAgentParts
from .metrics import AgentMetrics
from .nodefacts import NodeFacts
from .planned import DeviceResources
from .podresources import PodResourcesClient
from .settings import AgentSettings
from .settling import MaskSettling
from .writing import PodWriter

STOP_SECONDS = 8.0
"""How long the threads may take to end after SIGTERM: a write in flight ends, a new one is not begun."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Assembled:
    """One node's agent, ready to run, and what it is made of."""

    agent: NodeAgent
    watch: PodWatch
    kubelet: PodResourcesClient
    metrics: AgentMetrics
    auditor: NodeAuditor
    explainer: NodeExplainer


def assemble(
    settings: AgentSettings, connection: Connection, *, monotonic: Callable[[], float] = time.monotonic
) -> Assembled:
    """The agent of one node; several fit into one process.

    Raises:
        HostReadError: the sysfs root is no sysfs.
        OverrideError: the topology override cannot be used.
    """
    settings.root.require_sysfs()
    # One more try at once; what fails then is tried again by the loop and the watch, in their own time.
    client = KubeClient(connection, user_agent="cpuplan-agent", retries=default_retries().new(total=1))
    metrics = AgentMetrics()
    kubelet = PodResourcesClient(settings.podresources_socket)
    resources = DeviceResources(settings.device_resources)
    drivers = settings.device_drivers
    claims = ClaimReader(client, settings.node_name, resources=resources, drivers=drivers, monotonic=monotonic)
    facts = _facts(settings, claims, metrics)
    agents: list[NodeAgent] = []
    watch = _watch(settings, client, agents)

    def refresh() -> None:
        facts.refresh()
        claims.forget_slices()
        claims.keep_allocations_of(frozenset(pod.uid for pod in watch.pods()))

    auditor = NodeAuditor(settings.node_name, facts, AuditMetrics(metrics.registry), monotonic=monotonic)
    explainer = NodeExplainer(settings.node_name, settings.root, placed_by=facts.placed_by, monotonic=monotonic)
    parts = NodeAgentParts(
        node_name=settings.node_name,
        watch=watch,
        kubelet=kubelet,
        facts=facts,
        writer=PodWriter(client, metrics, learn=watch.learn, monotonic=monotonic),
        metrics=metrics,
        settling=MaskSettling(settings.settle_seconds, monotonic=monotonic),
        resources=resources,
        auditor=auditor,
        explainer=explainer,
        rules=NodeRules(is_pinnable=PINNABLE, most_pinned_per_pod=settings.most_pinned_per_pod),
        refresh=refresh,
    )
    agents.append(NodeAgent(parts, resync_seconds=settings.resync_seconds, monotonic=monotonic))
    return Assembled(agents[0], watch, kubelet, metrics, auditor, explainer)


def _watch(settings: AgentSettings, client: KubeClient, agents: list[NodeAgent]) -> PodWatch:
    """The watch of the node's pods; it tells the agent that `agents` holds once it runs: each needs the other."""

    def pod_changed(change: PodChange) -> None:
        agents[0].pod_changed(change)

    def watch_failed(error: KubeError) -> None:
        agents[0].watch_failed(error)

    return PodWatch(
        client,
        settings.node_name,
        on_change=pod_changed,
        on_error=watch_failed,
        start_jitter_seconds=settings.start_jitter_seconds,
    )


def _facts(settings: AgentSettings, claims: ClaimReader, metrics: AgentMetrics) -> NodeFacts:
    override = _override(settings.topology_override, metrics)
    facts = NodeFacts(
        settings.root,
        claimed=claims.devices_of,
        reserved=settings.reserved_cpus,
        nvml=None if settings.nvml_library is None else NvmlAddresses(settings.nvml_library),
        override=override,
    )
    if override is not None:
        # Read at once, so that the log says at the start, and not with the first plan, how it differs from sysfs.
        facts.topology(())
    return facts


def _override(file: Path | None, metrics: AgentMetrics) -> OverrideFile | None:
    """The override, None without one: the path is the same on all nodes, and most have nothing to correct."""
    if file is None:
        return None
    try:
        return read_override(file)
    except OverrideMissingError:
        _log.warning("this node has no topology override, sysfs alone says where its GPUs are file=%s", file)
        metrics.override_is_missing()
        return None


def documents_of(settings: AgentSettings, assembled: Assembled) -> dict[str, Document]:
    """What is served beside the metrics, as far as the administrator lets it be."""

    def explanation(query: Query) -> str:
        return assembled.explainer.document(query, trouble=assembled.agent.trouble_ready())

    documents: dict[str, Document] = {}
    if settings.is_audit_served:
        documents[f"/{AUDIT_PAGE}"] = lambda _query: assembled.auditor.document()
    if settings.is_explanation_served:
        documents[f"/{EXPLAIN_PAGE}"] = explanation
    return documents


def run_agent(settings: AgentSettings) -> int:
    """Runs the agent until SIGTERM or SIGINT; the exit code."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    try:
        connection = connect(settings.kubeconfig)
        assembled = assemble(settings, connection)
        agent = assembled.agent
        answers = Answers(
            assembled.metrics.registry, agent.trouble_alive, agent.trouble_ready, documents_of(settings, assembled)
        )
        with served(settings.metrics_address, answers) as port:
            _log.info("agent starts api=%s port=%d %s", connection.base_url, port, settings.as_log())
            _work(assembled, stopping)
    except (KubeConfigError, HostReadError, OverrideError, ListenError) as error:
        _log.error("%s", error)
        return EXIT_MISCONFIGURED
    assembled.kubelet.close()
    connection.close()
    return 0


def _work(assembled: Assembled, stopping: threading.Event) -> None:
    """Watches and plans until `stopping` is set."""
    threads = [
        threading.Thread(target=assembled.watch.run, name="pod watch", daemon=True),
        threading.Thread(target=assembled.agent.run, name="planner", daemon=True),
    ]
    for thread in threads:
        thread.start()
    stopping.wait()
    _log.info("agent stops, plans stay as they are")
    assembled.agent.stop()
    assembled.watch.close()
    for thread in threads:
        thread.join(STOP_SECONDS / len(threads))
