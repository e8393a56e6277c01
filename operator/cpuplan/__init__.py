"""cpuplan: which CPUs an inference server's threads use, planned from what the node really has.

This is the in-process face that engines import; behind it is the standard library alone. A name is loaded
when it is first asked for, so that an engine pays only for what it uses.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .host.affinity import PINNABLE, process_mask, usable_cpus
    from .host.cgroup import cgroup_cpu_quota
    from .host.gpulock import claim_gpus
    from .host.sysfs import host_gpus, smt_siblings
    from .inprocess.apply import Pins, PinState, ThreadPin, pin_pool_threads, pin_result_threads, pin_step_threads
    from .inprocess.current import deployment_plan, devices_plan, install, plan
    from .inprocess.devices import device_addresses
    from .inprocess.environment import set_thread_variables
    from .inprocess.follow import Followed, follow_plan
    from .inprocess.foreign import ForeignBinder, foreign_binders
    from .inprocess.published import NotPublished, PublishedPlan, read_published, wait_for_plan, watch_plan
    from .model.cpulist import format_cpu_list, parse_cpu_list
    from .model.errors import CpuPlanError
    from .model.plan import CpuPlan, StepCpus
    from .model.topology import HostGpu
    from .planning.budget import Budget, budget_of

__version__ = "0.1.0"

_HOMES = {
    "PINNABLE": "host.affinity",
    "Budget": "planning.budget",
    "CpuPlan": "model.plan",
    "CpuPlanError": "model.errors",
    "Followed": "inprocess.follow",
    "ForeignBinder": "inprocess.foreign",
    "HostGpu": "model.topology",
    "NotPublished": "inprocess.published",
    "PinState": "inprocess.apply",
    "Pins": "inprocess.apply",
    "PublishedPlan": "inprocess.published",
    "StepCpus": "model.plan",
    "ThreadPin": "inprocess.apply",
    "budget_of": "planning.budget",
    "cgroup_cpu_quota": "host.cgroup",
    "claim_gpus": "host.gpulock",
    "deployment_plan": "inprocess.current",
    "device_addresses": "inprocess.devices",
    "devices_plan": "inprocess.current",
    "follow_plan": "inprocess.follow",
    "foreign_binders": "inprocess.foreign",
    "format_cpu_list": "model.cpulist",
    "host_gpus": "host.sysfs",
    "install": "inprocess.current",
    "parse_cpu_list": "model.cpulist",
    "pin_pool_threads": "inprocess.apply",
    "pin_result_threads": "inprocess.apply",
    "pin_step_threads": "inprocess.apply",
    "plan": "inprocess.current",
    "process_mask": "host.affinity",
    "read_published": "inprocess.published",
    "set_thread_variables": "inprocess.environment",
    "smt_siblings": "host.sysfs",
    "usable_cpus": "host.affinity",
    "wait_for_plan": "inprocess.published",
    "watch_plan": "inprocess.published",
}

__all__ = [
    "PINNABLE",
    "Budget",
    "CpuPlan",
    "CpuPlanError",
    "Followed",
    "ForeignBinder",
    "HostGpu",
    "NotPublished",
    "PinState",
    "Pins",
    "PublishedPlan",
    "StepCpus",
    "ThreadPin",
    "budget_of",
    "cgroup_cpu_quota",
    "claim_gpus",
    "deployment_plan",
    "device_addresses",
    "devices_plan",
    "follow_plan",
    "foreign_binders",
    "format_cpu_list",
    "host_gpus",
    "install",
    "parse_cpu_list",
    "pin_pool_threads",
    "pin_result_threads",
    "pin_step_threads",
    "plan",
    "process_mask",
    "read_published",
    "set_thread_variables",
    "smt_siblings",
    "usable_cpus",
    "wait_for_plan",
    "watch_plan",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
