"""Settings of the operator process: flags, each with an environment variable behind it."""

import argparse
import logging
import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from .endpoints import Address, parse_address
from .logs import LEVELS

LOG = logging.getLogger(__name__)

EXIT_MISCONFIGURED = 2
"""Nothing will change until somebody changes settings, credentials or rights."""

ENVIRONMENT_PREFIX = "CPUPLAN_"


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
    given = os.environ if environment is None else environment

    def add(flag: str, *, default: str, text: str, fallback: str = "", **options: object) -> None:
        variable = ENVIRONMENT_PREFIX + flag.upper().replace("-", "_")
        value = given.get(variable) or given.get(fallback) or default
        names = f"{variable} or {fallback}" if fallback else variable
        shown = f"default {default}" if default else "no default"
        parser.add_argument(f"--{flag}", default=value, help=f"{text} ({names}; {shown})", **options)  # type: ignore[arg-type]

    add("namespace", default="", fallback="POD_NAMESPACE", text="namespace of the release")
    add("configmap", default="cpuplan", text="name of the shared ConfigMap; more of them get -1, -2, …")
    add("lease", default="cpuplan-operator", text="name of the leader's Lease")
    add("identity", default="", fallback="POD_NAME", text="this process as the Lease names it; made up if empty")
    add("metrics-address", default="0.0.0.0:9466", text="where /metrics, /healthz and /readyz are served")
    add("kubeconfig", default="", text="kubeconfig file; empty for the pod's service account")
    add("log-level", default="info", text="debug, info, warning or error", choices=LEVELS)
    add(
        "agent-selector",
        default="app.kubernetes.io/name=cpuplan,app.kubernetes.io/component=agent",
        text="labels of the agents' pods in the release's namespace",
    )
    add("write-interval-seconds", default="2", text="shortest time between two writes of the index", type=_seconds)
    add("resync-seconds", default="600", text="time between full listings", type=_seconds)
    add("plan-wait-seconds", default="30", text="a pod without a plan for this long is reported", type=_seconds)
    add("init-wait-seconds", default="15", text="how long the init container waits, for messages", type=_seconds)
    add("lease-seconds", default="30", text="how long others wait for a silent leader", type=_lease_seconds)


def settings_from(arguments: argparse.Namespace) -> OperatorSettings:
    """The settings that the parsed flags mean.

    Raises:
        ValueError: the namespace is missing; the log level or the address is none.
    """
    if not arguments.namespace:
        raise ValueError("the namespace of the release is not known: give --namespace or set POD_NAMESPACE")
    if arguments.log_level not in LEVELS:
        raise ValueError(f"log level {arguments.log_level!r} is none of {', '.join(LEVELS)}")
    return OperatorSettings(
        namespace=arguments.namespace,
        configmap=arguments.configmap,
        lease=arguments.lease,
        identity=arguments.identity or f"{socket.gethostname()}_{uuid.uuid4()}",
        metrics_address=parse_address(arguments.metrics_address),
        kubeconfig=Path(arguments.kubeconfig) if arguments.kubeconfig else None,
        log_level=arguments.log_level,
        agent_selector=arguments.agent_selector,
        write_interval_seconds=arguments.write_interval_seconds,
        resync_seconds=arguments.resync_seconds,
        plan_wait_seconds=arguments.plan_wait_seconds,
        init_wait_seconds=arguments.init_wait_seconds,
        lease_seconds=arguments.lease_seconds,
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs the operator until it is stopped; the exit code."""
    from .process import run_operator  # noqa: PLC0415 - kopf is loaded by those who run, not by --help

    try:
        settings = settings_from(arguments)
    except ValueError as error:
        LOG.error("%s", error)
        return EXIT_MISCONFIGURED
    return run_operator(settings)


def _seconds(text: str) -> float:
    return _number(text, least=0.1)


def _lease_seconds(text: str) -> float:
    return _number(text, least=3)


def _number(text: str, *, least: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from {least:g} to 86400")
    return value
