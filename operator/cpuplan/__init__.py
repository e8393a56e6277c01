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
    from .inprocess.current import deployment_plan, devices_plan, install, plan
    from .inprocess.devices import device_addresses
    from .model.cpulist import format_cpu_list, parse_cpu_list
    from .model.errors import CpuPlanError
    from .model.plan import CpuPlan, StepCpus
    from .model.topology import HostGpu

__version__ = "0.1.0"

_HOMES = {
    "PINNABLE": "host.affinity",
    "CpuPlan": "model.plan",
    "CpuPlanError": "model.errors",
    "HostGpu": "model.topology",
    "StepCpus": "model.plan",
    "cgroup_cpu_quota": "host.cgroup",
    "claim_gpus": "host.gpulock",
    "deployment_plan": "inprocess.current",
    "device_addresses": "inprocess.devices",
    "devices_plan": "inprocess.current",
    "format_cpu_list": "model.cpulist",
    "host_gpus": "host.sysfs",
    "install": "inprocess.current",
    "parse_cpu_list": "model.cpulist",
    "plan": "inprocess.current",
    "process_mask": "host.affinity",
    "smt_siblings": "host.sysfs",
    "usable_cpus": "host.affinity",
}

__all__ = [
    "PINNABLE",
    "CpuPlan",
    "CpuPlanError",
    "HostGpu",
    "StepCpus",
    "cgroup_cpu_quota",
    "claim_gpus",
    "deployment_plan",
    "device_addresses",
    "devices_plan",
    "format_cpu_list",
    "host_gpus",
    "install",
    "parse_cpu_list",
    "plan",
    "process_mask",
    "smt_siblings",
    "usable_cpus",
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
