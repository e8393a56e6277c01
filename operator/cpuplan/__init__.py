"""cpuplan: which CPUs an inference server's threads use, planned from what the node really has.

This is the in-process face that engines import; behind it is the standard library alone.
"""

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
