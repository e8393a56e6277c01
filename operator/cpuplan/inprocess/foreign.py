"""Who else binds threads in this process: found by variables, masks and memory policy, and how to turn it off.

Two binders of one thread undo each other silently; the last one wins.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

from ..host.cgroup import cgroup_cpuset, own_mountinfo
from ..host.root import HostRoot, read_text
from ..host.sysfs import THIS_HOST
from ..host.threads import read_allowed_cpus
from ..model.cpulist import format_cpu_list, parse_cpu_list
from .current import plan as current_plan
from .launchers import POOL_CPUS_VARIABLE, openmp_place

NO_CPUS: frozenset[int] = frozenset()

_OPENMP_VARIABLES = frozenset({"OMP_PROC_BIND", "OMP_PLACES"})

_OFF_WORDS = frozenset({"", "0", "false", "no", "off", "none", "disabled"})


@dataclass(frozen=True, slots=True)
class ForeignBinder:
    """Something else that binds threads: its stable name, what was seen, and what turns it off."""

    name: str
    seen: str
    turn_off: str

    def __str__(self) -> str:
        return f"{self.seen}; to turn it off: {self.turn_off}"


@dataclass(frozen=True, slots=True)
class _Rule:
    """A variable that makes a library bind threads, when its value says so."""

    variable: str
    binder: str
    binds: Callable[[str], bool]
    turn_off: str


def _is_on(value: str) -> bool:
    return value.strip().lower() not in _OFF_WORDS


def _is_kmp_on(value: str) -> bool:
    """KMP_AFFINITY is a list: the type is among the words, the rest are modifiers.

    Source: LLVM OpenMP runtime documentation, KMP_AFFINITY; `respect`, `verbose` and granularity bind nothing.
    """
    return bool({"balanced", "compact", "explicit", "scatter", "logical", "physical"} & set(value.lower().split(",")))


_RULES = (
    # OpenMP 5.2, 21.1.6; libgomp and LLVM bind the initial thread too, which may be a step thread.
    _Rule("OMP_PROC_BIND", "OpenMP", _is_on, "OMP_PROC_BIND=false"),
    _Rule("KMP_AFFINITY", "the Intel/LLVM OpenMP runtime", _is_kmp_on, "KMP_AFFINITY=disabled"),
    # libgomp manual, GOMP_CPU_AFFINITY; OMP_PROC_BIND=false takes precedence over it.
    _Rule("GOMP_CPU_AFFINITY", "GNU OpenMP", _is_on, "unset GOMP_CPU_AFFINITY, or OMP_PROC_BIND=false"),
    # TensorRT-LLM deployment guide, CPU Affinity configuration.
    _Rule(
        "TLLM_NUMA_AWARE_WORKER_AFFINITY",
        "TensorRT-LLM",
        lambda value: value.strip() == "1",
        "TLLM_NUMA_AWARE_WORKER_AFFINITY=0",
    ),
    _Rule("SGLANG_SET_CPU_AFFINITY", "SGLang", _is_on, "SGLANG_SET_CPU_AFFINITY=0"),
    # vLLM environment variables, CPU backend: `all` and `nobind` bind nothing.
    _Rule(
        "VLLM_CPU_OMP_THREADS_BIND",
        "vLLM's CPU backend",
        lambda value: value.strip().lower() not in ("", "all", "nobind"),
        "VLLM_CPU_OMP_THREADS_BIND=nobind",
    ),
)


def foreign_binders(
    environ: Mapping[str, str] | None = None,
    root: HostRoot = THIS_HOST,
    *,
    modules: Container[str] | None = None,
    pool_cpus: frozenset[int] = NO_CPUS,
) -> list[ForeignBinder]:
    """Everything else that binds, or has bound, threads of this process.

    What `cpuplan run --pin` and the output of `cpuplan env` (OpenMP's places, taskset's list) do is not foreign.

    Args:
        environ: the variables; None: this process's.
        root: where `proc/self` describes the process.
        modules: names of loaded Python modules; None: this process's.
        pool_cpus: where the plan in force lets pools float, empty where that is not known.
    """
    variables = os.environ if environ is None else environ
    loaded = sys.modules if modules is None else modules
    own_variables = _OPENMP_VARIABLES if _has_own_places(variables) else frozenset[str]()
    found = [
        ForeignBinder(
            rule.variable, f"{rule.variable}={variables[rule.variable]} makes {rule.binder} bind threads", rule.turn_off
        )
        for rule in _RULES
        if rule.variable in variables and rule.binds(variables[rule.variable])
    ]
    found += _unset_but_binding(variables, loaded)
    found = [binder for binder in found if binder.name not in own_variables]
    found += _narrowed_mask(root, variables, pool_cpus)
    found += _memory_policy(root)
    return found


def _has_own_places(variables: Mapping[str, str]) -> bool:
    """Whether OpenMP's places are those of `cpuplan env -o omp`: one, of the CPUs that our own variable names."""
    try:
        cpus = parse_cpu_list(variables.get(POOL_CPUS_VARIABLE, ""))
    except ValueError:
        return False
    return bool(cpus) and variables.get("OMP_PLACES") == openmp_place(cpus)


def _unset_but_binding(variables: Mapping[str, str], loaded: Container[str]) -> list[ForeignBinder]:
    """Variables whose absence means binding."""
    found = []
    places = variables.get("OMP_PLACES", "")
    if places and "OMP_PROC_BIND" not in variables:
        # libgomp manual, OMP_PROC_BIND: true by default where OMP_PLACES is set.
        seen = f"OMP_PLACES={places} without OMP_PROC_BIND makes OpenMP bind threads to those places"
        found.append(ForeignBinder("OMP_PLACES", seen, "OMP_PROC_BIND=false"))
    if "tensorrt_llm" in loaded and "TLLM_NUMA_AWARE_WORKER_AFFINITY" not in variables:
        seen = "TensorRT-LLM sets the affinity of unconstrained workers, and clears that of constrained ones"
        found.append(ForeignBinder("TLLM_NUMA_AWARE_WORKER_AFFINITY", seen, "TLLM_NUMA_AWARE_WORKER_AFFINITY=0"))
    return found


def _narrowed_mask(root: HostRoot, variables: Mapping[str, str], pool_cpus: frozenset[int]) -> list[ForeignBinder]:
    """A process that may run on fewer CPUs than its cgroup grants: systemd's CPUAffinity, taskset or numactl.

    PID 1 of the container tells them apart: it has the narrow mask too where the runtime's unit passed it on.
    What `cpuplan run --pin` has left it, the CPUs on which the plan lets pools float (`cpuplan env -o taskset`),
    and a main thread that the plan pins, are no foreign doing.
    """
    own = root.proc / "self"
    mask = read_allowed_cpus("self", root)
    cpuset = cgroup_cpuset(root.cgroup, own / "cgroup", mountinfo=own_mountinfo(root))
    if mask is None or cpuset is None or cpuset <= mask:
        return []
    is_own = format_cpu_list(mask) == variables.get(POOL_CPUS_VARIABLE) or mask == pool_cpus
    if is_own or mask <= current_plan().pinned:
        return []
    seen = f"this process may run on {format_cpu_list(mask)} while its cgroup grants {format_cpu_list(cpuset)}"
    if read_allowed_cpus(1, root) == mask:
        return [
            ForeignBinder(
                "CPUAffinity",
                f"{seen}, and so it is from PID 1 on",
                "remove CPUAffinity= from the systemd unit (of the container runtime)",
            )
        ]
    return [ForeignBinder("affinity", f"{seen}, unlike PID 1", "start it without taskset, numactl or srun's binding")]


def _memory_policy(root: HostRoot) -> list[ForeignBinder]:
    """A memory policy other than the default, which is what `numactl --membind` and its like leave.

    Source: numa_maps in proc_pid_numa_maps(5): the second word of each line is the policy in effect.
    """
    first = (read_text(root.proc / "self" / "numa_maps") or "").partition("\n")[0].split()
    if len(first) < 2 or first[1] in ("default", "local"):
        return []
    seen = f"the memory policy of this process is {first[1]} (numactl or set_mempolicy)"
    return [ForeignBinder("numactl", seen, "start it without numactl")]
