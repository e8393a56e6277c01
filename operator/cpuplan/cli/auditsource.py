"""Where `cpuplan audit` finds audits: the agents through the API server, URLs, or this machine's processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..host.cgroup import cgroup_cpu_limit
from ..host.devices import PlacedDevice
from ..host.gpuprocesses import GpuProcess, read_environment, read_gpu_processes
from ..host.root import HostRoot
from ..host.sysfs import read_topology
from ..host.threads import read_allowed_cpus
from ..kube.errors import ForbiddenError, KubeError, NotFoundError
from ..model.pools import visible_pools
from ..model.request import WorkerDevice
from ..planning.audit import AUDIT_VERSION, Audited, GpuUser, audit
from ..process.pages import AUDIT_PAGE
from .agents import Agent, NoAnswerError, agents_of, ask_agent, ask_url, no_right, not_found, rights_for
from .cluster import chosen_kubeconfig, open_cluster, plainly, told
from .errors import CliError

if TYPE_CHECKING:
    from ..kube.client import KubeClient

AT_ONCE = 8
"""Agents asked at the same time."""


@dataclass(frozen=True, slots=True)
class NodeAudit:
    """One node's audit, how old it is, and why there is none (empty: there is one)."""

    node: str
    seconds_old: float
    containers: tuple[Audited, ...]
    trouble: str = ""


def read_agents(kubeconfig: Path | None, agent_namespace: str, node: str | None) -> list[NodeAudit]:
    """The last audit of each node's agent, asked through the API server's proxy.

    It takes the rights to list pods and to get pods/proxy in the agents' namespace.

    Args:
        kubeconfig: None: kubectl's own.
        node: None: every node that has an agent.

    Raises:
        CliError: the agents cannot be listed, or there is none.
        ModuleNotFoundError: the package kubernetes is not installed.
    """
    from ..kube.client import KubeClient, default_retries  # noqa: PLC0415 - the other sources need no cluster

    files = chosen_kubeconfig(kubeconfig)
    connection = open_cluster(files, connection_count=AT_ONCE)
    client = KubeClient(connection, user_agent="cpuplan-audit", retries=default_retries().new(total=1))
    try:
        agents = agents_of(client, agent_namespace, node)
    except KubeError as error:
        raise told(error, files, connection, rights_for(agent_namespace)) from error
    if not agents:
        where = f"on node {node}" if node else f"in namespace {agent_namespace}"
        raise CliError(f"there is no cpuplan agent {where}; name the release's namespace with --agent-namespace")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda agent: _ask_agent(client, agent), agents))


def read_urls(urls: Sequence[str]) -> list[NodeAudit]:
    """The audits at these URLs (`http://10.0.0.7:9465/audit`)."""
    return [_ask_url(url) for url in urls]


def read_local(root: HostRoot) -> tuple[list[NodeAudit], int]:
    """The audit of this machine's processes with GPUs, and how many processes could not be looked into.

    Raises:
        HostReadError: the root is no sysfs.
    """
    found = read_gpu_processes(root)
    users = [_user(process, root) for process in found.processes]
    topology = read_topology(root, {device.address for user in users for device in user.devices if device.address})
    audited = tuple(audit(user, topology) for user in users)
    return [NodeAudit("this machine", 0.0, audited)], found.hidden_count


def _ask_agent(client: KubeClient, agent: Agent) -> NodeAudit:
    try:
        return parse_audit(ask_agent(client, agent, AUDIT_PAGE))
    except ForbiddenError as error:
        trouble = no_right(f"the agent {agent.name}", error, agent.namespace)
    except NotFoundError as error:
        trouble = not_found(agent, error, AUDIT_PAGE)
    except KubeError as error:
        trouble = f"the agent {agent.name} cannot be asked: {plainly(error, client.base_url)}"
    except CliError as error:
        trouble = f"the agent {agent.name} cannot be asked: {error}"
    return NodeAudit(agent.node or "no node yet", 0.0, (), trouble)


def _ask_url(url: str) -> NodeAudit:
    try:
        answer = ask_url(url, AUDIT_PAGE)
    except NoAnswerError as error:
        return NodeAudit(url, 0.0, (), str(error))
    try:
        return parse_audit(answer)
    except CliError as error:
        return NodeAudit(url, 0.0, (), f"{url} cannot be read: {error}")


def parse_audit(document: Any) -> NodeAudit:
    """The audit in an agent's answer.

    Raises:
        CliError: it is none, or one of another version.
    """
    version = document.get("version") if isinstance(document, dict) else None
    if version != AUDIT_VERSION:
        raise CliError(f"the answer is no audit of version {AUDIT_VERSION}: its version is {version!r}")
    try:
        return NodeAudit(
            node=str(document["node"]),
            seconds_old=float(document["secondsOld"]),
            containers=tuple(map(Audited.from_document, document["containers"])),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CliError(f"the answer is no audit: a field is missing or malformed: {error!r}") from error


def _user(process: GpuProcess, root: HostRoot) -> GpuUser:
    folder = root.proc / str(process.process_id)
    limit = cgroup_cpu_limit(root.cgroup, folder / "cgroup", mountinfo=root.proc / "self" / "mountinfo")
    return GpuUser(
        namespace="",
        name=f"process {process.process_id} {process.name}",
        devices=tuple(
            WorkerDevice(place.address if isinstance(place, PlacedDevice) else None, name)
            for name, place in _once_per_address(process)
        ),
        trouble="",
        mask=read_allowed_cpus(process.process_id, root) or frozenset(),
        quota=limit.quota,
        pools=visible_pools(read_environment(process.process_id, root)),
    )


def _once_per_address(process: GpuProcess) -> Iterable[tuple[str, Any]]:
    """The devices, each once: one GPU may have several device files."""
    by_place = {getattr(place, "address", name): (name, place) for name, place in process.devices.items()}
    return by_place.values()
