"""This process's plan: computed from the host, installed, asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import index
from pathlib import Path
from typing import TypeVar

from ..host.affinity import PINNABLE, process_mask, usable_cpus
from ..host.forklock import fork_safe_lock
from ..host.sysfs import THIS_HOST, host_gpus, smt_siblings
from ..model.plan import CpuPlan
from ..planning.cores import Geometry
from ..planning.deployment import plan_deployment
from ..planning.setting import is_auto
from .devices import Resolver, device_addresses

_Value = TypeVar("_Value")

_installed: CpuPlan | None = None
_computed: CpuPlan | None = None
_lock = fork_safe_lock()


def deployment_plan(
    setting: object,
    addresses: Iterable[str | None],
    *,
    mask: Iterable[int] | None = None,
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
        TypeError: `addresses` is one text, or a CPU is no whole number.
    """
    addresses = _one_per_worker("addresses", addresses)
    places = addresses if is_auto(setting) else ()
    gpus = next((found for address in places if (found := host_gpus(address, pci_root))), [])
    return plan_deployment(
        setting,
        addresses,
        # index: the numbers of other libraries (numpy) become int, which JSON knows.
        mask=process_mask() if mask is None else frozenset(map(index, mask)),
        usable=usable_cpus() if usable is None else max(1, index(usable)),
        geometry=Geometry(gpus, siblings),
        is_pinnable=PINNABLE,
    )


def devices_plan(setting: object, devices: Iterable[str], *, resolver: Resolver | None = None) -> CpuPlan:
    """The plan of a deployment whose workers' devices are given as strings (`cuda:0`, `cpu`).

    Addresses are resolved only for `auto`; for every other setting no GPU runtime is touched.

    Raises:
        CpuPlanError: as deployment_plan.
        TypeError: `devices` is one text.
        ValueError: an index is not a number.
    """
    devices = _one_per_worker("devices", devices)
    if is_auto(setting):
        return deployment_plan(setting, device_addresses(devices, resolver=resolver))
    return deployment_plan(setting, [None] * len(devices))


def _one_per_worker(name: str, values: Iterable[_Value]) -> tuple[_Value, ...]:
    """The values; a text, which would count as one worker per character, is refused."""
    if isinstance(values, str):
        raise TypeError(f"{name} is the text {values!r}: expected one per worker, as in [{values!r}]")
    return tuple(values)


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
