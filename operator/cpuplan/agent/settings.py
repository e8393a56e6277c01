"""Settings of the agent process: flags, each with an environment variable behind it."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from ..host.root import HostRoot
from ..model.cpulist import format_cpu_list, parse_cpu_list
from ..process.address import Address
from ..process.flags import Flags, seconds_from
from .claims import DEFAULT_DEVICE_DRIVERS
from .planned import DEFAULT_DEVICE_RESOURCES

_DRIVER = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", re.ASCII)
"""At most 63 characters of a DNS subdomain (resource.k8s.io)."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The effective settings; times in seconds.

    Attributes:
        root: where the node's trees are.
        kubeconfig: None for the pod's service account.
        reserved_cpus: CPUs that no plan may use.
        most_pinned_per_pod: None does not bound it.
        nvml_library: NVML's shared library, asked where NVIDIA's files do not tell; None: it is not asked.
        topology_override: file that says where GPUs are; None: sysfs alone does.
        is_audit_served: /audit answers, to whoever reaches the metrics.
        is_explanation_served: /explain does.
    """

    node_name: str
    root: HostRoot
    podresources_socket: Path
    metrics_address: Address
    kubeconfig: Path | None
    log_level: str
    device_resources: tuple[str, ...]
    device_drivers: tuple[str, ...]
    reserved_cpus: frozenset[int]
    most_pinned_per_pod: int | None
    topology_override: Path | None
    nvml_library: str | None
    resync_seconds: float
    settle_seconds: float
    start_jitter_seconds: float
    is_audit_served: bool
    is_explanation_served: bool

    def as_log(self) -> str:
        """All settings as key=value."""
        return " ".join(f"{field.name}={_shown(getattr(self, field.name))}" for field in fields(self))


def add_arguments(parser: argparse.ArgumentParser, environment: Mapping[str, str] | None = None) -> None:
    """Adds the flags of `cpuplan agent`; `--some-flag` falls back to CPUPLAN_SOME_FLAG."""
    flags = Flags(parser, environment)
    add = flags.add
    add("node-name", "", "name of the node whose pods are planned", fallback="NODE_NAME")
    add("sysfs-root", "/sys", "folder that stands for the node's /sys")
    add("proc-root", "/proc", "folder that stands for the node's /proc")
    add("cgroup-root", "/sys/fs/cgroup", "folder that stands for the node's /sys/fs/cgroup")
    add("podresources-socket", "/var/lib/kubelet/pod-resources/kubelet.sock", "the kubelet's PodResources socket")
    flags.add_process_flags(metrics_address="0.0.0.0:9465")
    add(
        "device-resources",
        ",".join(DEFAULT_DEVICE_RESOURCES),
        "extended resources that are devices, by commas; a * at the end stands for any ending",
        type=_resources,
    )
    add(
        "device-drivers",
        ",".join(DEFAULT_DEVICE_DRIVERS),
        "DRA drivers all of whose devices are GPUs, by commas; of other drivers those that are by their PCI class",
        type=_drivers,
    )
    add("reserved-cpus", "", "CPUs that no plan may use, as a kernel list such as 0-1,64-65", type=_cpu_list)
    add("max-pinned-per-pod", "0", "the most CPUs that one pod may pin; 0 does not bound it", type=_count)
    add("topology-override", "", "file that says where GPUs are (TOML, or NCCL's XML); outranks sysfs")
    add("nvml-library", "", "NVML's shared library (libnvidia-ml.so.1), for MIG devices; empty: NVML is not asked")
    add("resync-seconds", "30", "time between looks without an event", type=seconds_from(0))
    add("settle-seconds", "10", "how long a changed mask must last before pins follow it", type=seconds_from(0))
    add("start-jitter-seconds", "2", "the first list of pods comes after a random part of this", type=seconds_from(0))
    add("audit", "on", "on serves /audit beside the metrics: the node's GPU containers by name", choices=("on", "off"))
    add("explain", "on", "on serves /explain there: why a pod's CPUs are what they are", choices=("on", "off"))


def settings_from(arguments: argparse.Namespace) -> AgentSettings:
    """The settings that the parsed flags mean.

    Raises:
        ValueError: the node is not named, or a root is no readable folder.
    """
    if not arguments.node_name:
        raise ValueError("the node is not named: give --node-name or set NODE_NAME")
    settings = AgentSettings(
        node_name=arguments.node_name,
        root=HostRoot(Path(arguments.sysfs_root), Path(arguments.proc_root), Path(arguments.cgroup_root)),
        podresources_socket=Path(arguments.podresources_socket),
        metrics_address=arguments.metrics_address,
        kubeconfig=Path(arguments.kubeconfig) if arguments.kubeconfig else None,
        log_level=arguments.log_level,
        device_resources=arguments.device_resources,
        device_drivers=arguments.device_drivers,
        reserved_cpus=arguments.reserved_cpus,
        most_pinned_per_pod=arguments.max_pinned_per_pod or None,
        topology_override=Path(arguments.topology_override) if arguments.topology_override else None,
        nvml_library=arguments.nvml_library or None,
        resync_seconds=arguments.resync_seconds,
        settle_seconds=arguments.settle_seconds,
        start_jitter_seconds=arguments.start_jitter_seconds,
        is_audit_served=arguments.audit == "on",
        is_explanation_served=arguments.explain == "on",
    )
    for flag, folder in (("--proc-root", settings.root.proc), ("--cgroup-root", settings.root.cgroup)):
        if not os.access(folder, os.R_OK | os.X_OK):
            raise ValueError(f"{flag} {folder} is no readable folder; mount the node's there, or name where it is")
    return settings


def _shown(value: object) -> str:
    if isinstance(value, HostRoot):
        return f"{value.sys},{value.proc},{value.cgroup}"
    if isinstance(value, frozenset):
        return format_cpu_list(value) or "none"
    if isinstance(value, tuple):
        return ",".join(value)
    return "none" if value is None else str(value)


def _resources(text: str) -> tuple[str, ...]:
    names = tuple(name for part in text.split(",") if (name := part.strip()))
    wrong = [name for name in names if "/" not in name or "*" in name[:-1]]
    if wrong or not names:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected names of extended resources such as nvidia.com/gpu or nvidia.com/mig-*, by commas"
        )
    return names


def _drivers(text: str) -> tuple[str, ...]:
    names = tuple(name for part in text.split(",") if (name := part.strip()))
    if not all(_DRIVER.fullmatch(name) for name in names):
        raise argparse.ArgumentTypeError(f"{text!r}: expected names of DRA drivers such as gpu.nvidia.com, by commas")
    return names


def _cpu_list(text: str) -> frozenset[int]:
    try:
        return parse_cpu_list(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of CPUs (0: no bound)")
    return int(text)
