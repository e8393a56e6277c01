"""This process's plan: computed from the host, installed, asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from ..host.affinity import PINNABLE, process_mask, usable_cpus
from ..host.sysfs import THIS_HOST, host_gpus, smt_siblings
from ..model.plan import CpuPlan
from ..planning.cores import Geometry
from ..planning.deployment import plan_deployment
from ..planning.setting import AUTO
from .devices import Resolver, device_addresses

_installed: CpuPlan | None = None
_computed: CpuPlan | None = None
_lock = threading.Lock()


def deployment_plan(
    setting: object,
    addresses: Sequence[str | None],
    *,
    mask: frozenset[int] | None = None,
    usable: int | None = None,
    pci_root: Path = THIS_HOST.pci_folder,
    siblings: Callable[[int], frozenset[int]] = smt_siblings,
) -> CpuPlan:
    """The plan of a deployment on this host; every process that asks computes the same.

    Args:
        setting: `off`, `auto` or a CPU number.
        addresses: one PCI address, or None, per worker, in worker order.
        mask: CPUs that the processes may run on; None: this process's affinity.
        usable: CPUs that the quota lets run at once; None: this process's, also when a mask is given.
        pci_root: where PCI functions are described.
        siblings: the CPUs of a CPU's core.

    Raises:
        CpuPlanError: the setting is invalid, or its CPU number cannot be planned; `.reason` says which.
    """
    gpus = next((found for address in addresses if (found := host_gpus(address, pci_root))), [])
    return plan_deployment(
        setting,
        addresses,
        mask=process_mask() if mask is None else frozenset(mask),
        usable=usable_cpus() if usable is None else usable,
        geometry=Geometry(gpus, siblings),
        is_pinnable=PINNABLE,
    )


def devices_plan(setting: object, devices: Sequence[str], *, resolver: Resolver | None = None) -> CpuPlan:
    """The plan of a deployment whose workers' devices are given as strings (`cuda:0`, `cpu`).

    Addresses are resolved only for `auto`; for every other setting no GPU runtime is touched.
    """
    addresses: Sequence[str | None] = [None] * len(devices)
    if setting == AUTO:
        addresses = device_addresses(devices, resolver=resolver)
    return deployment_plan(setting, addresses)


def install(plan: CpuPlan | None) -> None:
    """Makes `plan` this process's plan; the last call wins, and None resets to the computed one."""
    global _installed, _computed  # noqa: PLW0603 - the one plan of this process
    with _lock:
        _installed = plan
        if plan is None:
            _computed = None


def plan() -> CpuPlan:
    """This process's plan: the installed one, else an unpinned one that is computed once and kept."""
    global _computed  # noqa: PLW0603 - the one plan of this process
    with _lock:
        if _installed is not None:
            return _installed
        if _computed is not None:
            return _computed
    fresh = CpuPlan(process_mask(), usable_cpus())
    with _lock:
        if _installed is not None:
            return _installed
        if _computed is None:
            _computed = fresh
        return _computed
