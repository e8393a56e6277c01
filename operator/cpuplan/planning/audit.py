"""What is wrong with the CPUs of containers and processes that use GPUs, whether or not anybody asked for a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..model.cpulist import format_cpu_list, parse_cpu_list
from ..model.plan import CpuPlan, usable_count
from ..model.pools import VisiblePools
from ..model.request import WorkerDevice
from ..model.topology import HostTopology
from .budget import budget_of, counted
from .confidence import Finding

DEVICE_UNKNOWN: Final = "device-unknown"
REMOTE_CPUS: Final = "remote-cpus"
PARTLY_REMOTE_CPUS: Final = "partly-remote-cpus"
POOLS_OVER_QUOTA: Final = "pools-over-quota"
POOLS_UNBOUNDED: Final = "pools-unbounded"
TOO_FEW_CPUS: Final = "too-few-cpus"

TESTS: Final = (DEVICE_UNKNOWN, REMOTE_CPUS, PARTLY_REMOTE_CPUS, POOLS_OVER_QUOTA, POOLS_UNBOUNDED, TOO_FEW_CPUS)
"""Every test that an audit makes, by the name that its findings have."""

AUDIT_VERSION = 1
"""Version of the JSON form; raised when a reader of the old form would misunderstand the new."""


@dataclass(frozen=True, slots=True)
class GpuUser:
    """A container or a process that has devices, as it is now.

    Attributes:
        namespace: of its pod; empty for a process outside Kubernetes.
        name: what it is called, for people.
        devices: one per device that it has.
        trouble: why its devices cannot be seen; empty where they can.
        mask: CPUs it may run on; empty where they are not known.
        quota: its CPU limit in CPUs, None without one.
        pools: what can be seen of its thread pools.
        is_planned: somebody asked for a plan.
        is_pinned: its plan pins its step threads.
    """

    namespace: str
    name: str
    devices: tuple[WorkerDevice, ...]
    trouble: str
    mask: frozenset[int]
    quota: float | None
    pools: VisiblePools
    is_planned: bool = False
    is_pinned: bool = False


@dataclass(frozen=True, slots=True)
class Audited:
    """One user of devices, and what was found.

    Attributes:
        namespace, name, mask, quota, is_planned: as GpuUser's.
        local: CPUs of the mask that are local to a device of its own, None where that is not known.
        usable: CPUs that the quota lets run at once, at least 1.
        addresses: its devices, None where one cannot be placed.
        findings: what is wrong, empty where nothing is.
    """

    namespace: str
    name: str
    is_planned: bool
    mask: frozenset[int]
    local: frozenset[int] | None
    quota: float | None
    usable: int
    addresses: tuple[str | None, ...]
    findings: tuple[Finding, ...]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def to_document(self) -> dict[str, Any]:
        """The JSON object; unknown is null."""
        return {
            "namespace": self.namespace,
            "name": self.name,
            "planned": self.is_planned,
            "mask": format_cpu_list(self.mask),
            "localCpus": None if self.local is None else format_cpu_list(self.local),
            "quota": self.quota,
            "usable": self.usable,
            "devices": list(self.addresses),
            "findings": [{"test": finding.test, "sentence": finding.sentence} for finding in self.findings],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Audited:
        """What `to_document` wrote.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: a field is missing or malformed.
        """
        local, quota = document["localCpus"], document["quota"]
        return cls(
            namespace=str(document["namespace"]),
            name=str(document["name"]),
            is_planned=bool(document["planned"]),
            mask=parse_cpu_list(document["mask"]),
            local=None if local is None else parse_cpu_list(local),
            quota=None if quota is None else float(quota),
            usable=int(document["usable"]),
            addresses=tuple(None if address is None else str(address) for address in document["devices"]),
            findings=tuple(Finding(str(entry["test"]), str(entry["sentence"])) for entry in document["findings"]),
        )


def audit(user: GpuUser, topology: HostTopology) -> Audited:
    """What is wrong with the user's CPUs.

    1. `device-unknown`: its devices cannot be seen or placed; nothing is said of their CPUs then.
    2. `remote-cpus`: none of its CPUs is local to a device of its own.
    3. `partly-remote-cpus`: some of its CPUs are local to none of its devices, and no plan pins its step threads.
    4. `pools-over-quota`: a variable asks for more threads than the quota lets run at once.
    5. `pools-unbounded`: there is a quota below the CPUs it sees, and no variable that bounds a pool.
    6. `too-few-cpus`: the quota cannot run one step thread per device, a result and a pool thread at once.
    """
    usable = usable_count(len(user.mask), user.quota)
    local = _local_cpus(user, topology)
    findings = (
        *_unknown_devices(user),
        *_remote_cpus(user, topology),
        *_partly_remote_cpus(user, local),
        *_large_pools(user, usable),
        *_shortage(user, usable),
    )
    return Audited(
        user.namespace,
        user.name,
        user.is_planned,
        user.mask,
        local,
        user.quota,
        usable,
        tuple(device.address for device in user.devices),
        findings,
    )


def _local_cpus(user: GpuUser, topology: HostTopology) -> frozenset[int] | None:
    """The CPUs of the mask near any device; None where the place of a device is not known or has no CPU."""
    near: frozenset[int] = frozenset()
    for device in user.devices:
        function = None if device.address is None else topology.function(device.address)
        if function is None or not function.local or function.node in (None, "-1"):
            return None
        near |= function.local
    return near & user.mask if user.devices and user.mask else None


def _unknown_devices(user: GpuUser) -> Iterator[Finding]:
    if user.trouble:
        yield Finding(DEVICE_UNKNOWN, user.trouble)
    for device in user.devices:
        if device.address is None and device.device_id is not None:
            yield Finding(DEVICE_UNKNOWN, f"{device.device_id} cannot be placed: the node knows no such device")


def _remote_cpus(user: GpuUser, topology: HostTopology) -> Iterator[Finding]:
    for address in dict.fromkeys(device.address for device in user.devices):
        function = None if address is None else topology.function(address)
        if function is not None and function.local and user.mask and not function.local & user.mask:
            yield Finding(
                REMOTE_CPUS,
                f"all CPUs of the mask ({format_cpu_list(user.mask)}) are remote from GPU {address}, whose local "
                f"CPUs are {format_cpu_list(function.local)} (NUMA node {function.node})",
            )


def _partly_remote_cpus(user: GpuUser, local: frozenset[int] | None) -> Iterator[Finding]:
    if not local or local == user.mask or user.is_pinned:
        return
    remote = user.mask - local
    yield Finding(
        PARTLY_REMOTE_CPUS,
        f"{len(remote)} of the {len(user.mask)} CPUs of the mask ({format_cpu_list(remote)}) are remote from every GPU "
        "of its own, and nothing keeps its step threads from them; step_thread_core: auto does",
    )


def _large_pools(user: GpuUser, usable: int) -> Iterator[Finding]:
    if user.quota is None:
        return
    limit = f"the quota of {counted(user.quota, 'CPU')} lets {usable} run at once"
    for variable, threads in user.pools.thread_counts.items():
        if threads is not None and threads > usable:
            yield Finding(POOLS_OVER_QUOTA, f"{variable} asks for {counted(threads, 'thread')}, {limit}")
    if not user.pools.thread_counts and not user.pools.is_sized and usable < len(user.mask):
        yield Finding(
            POOLS_UNBOUNDED,
            f"no variable bounds its pools, so libraries size them to the {len(user.mask)} CPUs it sees; {limit}",
        )


def _shortage(user: GpuUser, usable: int) -> Iterator[Finding]:
    shortage = budget_of(CpuPlan(user.mask, usable), len(user.devices)).shortage
    if shortage is not None and user.mask:
        yield Finding(TOO_FEW_CPUS, shortage)
