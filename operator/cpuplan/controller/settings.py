"""Settings of the operator process: flags, each with an environment variable behind it."""

import argparse
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from ..process.address import Address
from ..process.flags import Flags, seconds_from


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """The effective settings; times in seconds.

    Attributes:
        namespace: of the release: there are the ConfigMaps and the Lease.
        identity: this process as holder of the Lease; a container restarted in its pod is the same one.
        kubeconfig: None for the pod's service account.
    """

    namespace: str
    configmap: str
    lease: str
    identity: str
    metrics_address: Address
    kubeconfig: Path | None
    log_level: str
    agent_selector: str
    write_interval_seconds: float
    resync_seconds: float
    plan_wait_seconds: float
    init_wait_seconds: float
    lease_seconds: float

    def as_log(self) -> str:
        """All settings as key=value."""
        return " ".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))


def add_arguments(parser: argparse.ArgumentParser, environment: Mapping[str, str] | None = None) -> None:
    """Adds the flags of `cpuplan operator`; `--some-flag` falls back to CPUPLAN_SOME_FLAG."""
    flags = Flags(parser, environment)
    add = flags.add
    add("namespace", "", "namespace of the release", fallback="POD_NAMESPACE")
    add("configmap", "cpuplan", "name of the shared ConfigMap; more of them get -1, -2, …")
    add("lease", "cpuplan-operator", "name of the leader's Lease")
    add("identity", "", "this process as the Lease names it; made up if empty", fallback="POD_NAME")
    flags.add_process_flags(metrics_address="0.0.0.0:9466")
    add(
        "agent-selector",
        "app.kubernetes.io/name=cpuplan,app.kubernetes.io/component=agent",
        "labels of the agents' pods in the release's namespace",
    )
    seconds, lease_seconds = seconds_from(0.1), seconds_from(3)
    add("write-interval-seconds", "2", "shortest time between two writes of the index", type=seconds)
    add("resync-seconds", "600", "time between full listings", type=seconds)
    add("plan-wait-seconds", "30", "a pod without a plan for this long is reported", type=seconds)
    add("init-wait-seconds", "15", "how long the init container waits, for messages", type=seconds)
    add("lease-seconds", "30", "how long others wait for a silent leader", type=lease_seconds)


def settings_from(arguments: argparse.Namespace) -> OperatorSettings:
    """The settings that the parsed flags mean.

    Raises:
        ValueError: the namespace is missing.
    """
    if not arguments.namespace:
        raise ValueError("the namespace of the release is not known: give --namespace or set POD_NAMESPACE")
    return OperatorSettings(
        namespace=arguments.namespace,
        configmap=arguments.configmap,
        lease=arguments.lease,
        identity=arguments.identity or f"{socket.gethostname()}_{uuid.uuid4()}",
        metrics_address=arguments.metrics_address,
        kubeconfig=Path(arguments.kubeconfig) if arguments.kubeconfig else None,
        log_level=arguments.log_level,
        agent_selector=arguments.agent_selector,
        write_interval_seconds=arguments.write_interval_seconds,
        resync_seconds=arguments.resync_seconds,
        plan_wait_seconds=arguments.plan_wait_seconds,
        init_wait_seconds=arguments.init_wait_seconds,
        lease_seconds=arguments.lease_seconds,
    )
