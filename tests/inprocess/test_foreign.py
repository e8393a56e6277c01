"""Other binders of threads: each seen, and none seen where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from cpuplan.host.root import HostRoot
from cpuplan.inprocess.current import install
from cpuplan.inprocess.foreign import foreign_binders
from cpuplan.inprocess.launchers import openmp_variables
from cpuplan.model.cpulist import parse_cpu_list
from cpuplan.model.plan import CpuPlan, StepCpus
from tests.machines import write_machine


@pytest.fixture
def host(tmp_path: Path) -> HostRoot:
    """A machine of its own, whose files a test may change."""
    return write_machine("small-vm", tmp_path / "host")


def names(environ: dict[str, str], host: HostRoot, modules: tuple[str, ...] = ()) -> list[str]:
    return [binder.name for binder in foreign_binders(environ, host, modules=modules)]


def describe_process(host: HostRoot, *, mask: str, cpuset: str, mask_of_pid_1: str) -> None:
    (host.proc / "self" / "status").write_text(f"Name:\tpython\nCpus_allowed_list:\t{mask}\n")
    (host.proc / "1").mkdir()
    (host.proc / "1" / "status").write_text(f"Name:\tserver\nCpus_allowed_list:\t{mask_of_pid_1}\n")
    (host.cgroup / "cpuset.cpus.effective").write_text(f"{cpuset}\n")


def test_a_plain_process_has_none(host: HostRoot) -> None:
    assert foreign_binders({"PATH": "/bin"}, host, modules=()) == []


@pytest.mark.parametrize(
    ("variable", "value", "turn_off"),
    [
        ("OMP_PROC_BIND", "true", "OMP_PROC_BIND=false"),
        ("OMP_PROC_BIND", "spread,close", "OMP_PROC_BIND=false"),
        ("KMP_AFFINITY", "granularity=fine,compact,1,0", "KMP_AFFINITY=disabled"),
        ("GOMP_CPU_AFFINITY", "0-3", "unset GOMP_CPU_AFFINITY, or OMP_PROC_BIND=false"),
        ("TLLM_NUMA_AWARE_WORKER_AFFINITY", "1", "TLLM_NUMA_AWARE_WORKER_AFFINITY=0"),
        ("SGLANG_SET_CPU_AFFINITY", "true", "SGLANG_SET_CPU_AFFINITY=0"),
        ("VLLM_CPU_OMP_THREADS_BIND", "0-31|32-63", "VLLM_CPU_OMP_THREADS_BIND=nobind"),
    ],
)
def test_a_variable_that_binds_is_named_with_what_turns_it_off(
    host: HostRoot, variable: str, value: str, turn_off: str
) -> None:
    (binder,) = foreign_binders({variable: value}, host, modules=())

    assert (binder.name, binder.turn_off) == (variable, turn_off)
    assert str(binder).startswith(f"{variable}={value} makes ")
    assert str(binder).endswith(f"; to turn it off: {turn_off}")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OMP_PROC_BIND", "false"),
        ("OMP_PROC_BIND", "FALSE"),
        ("KMP_AFFINITY", "disabled"),
        ("KMP_AFFINITY", "verbose,none"),
        ("GOMP_CPU_AFFINITY", ""),
        ("TLLM_NUMA_AWARE_WORKER_AFFINITY", "0"),
        ("SGLANG_SET_CPU_AFFINITY", "0"),
        ("VLLM_CPU_OMP_THREADS_BIND", "nobind"),
    ],
)
def test_a_variable_that_is_turned_off_is_no_binder(host: HostRoot, variable: str, value: str) -> None:
    assert names({variable: value}, host) == []


def test_places_bind_unless_binding_is_turned_off(host: HostRoot) -> None:
    assert names({"OMP_PLACES": "cores"}, host) == ["OMP_PLACES"]
    assert names({"OMP_PLACES": "cores", "OMP_PROC_BIND": "false"}, host) == []


def test_tensorrt_llm_binds_unless_it_is_told_not_to(host: HostRoot) -> None:
    loaded = ("tensorrt_llm",)

    assert names({}, host, loaded) == ["TLLM_NUMA_AWARE_WORKER_AFFINITY"]
    assert names({"TLLM_NUMA_AWARE_WORKER_AFFINITY": "0"}, host, loaded) == []


def test_a_container_confined_by_systemd_is_told_from_pid_1(host: HostRoot) -> None:
    describe_process(host, mask="0-3", cpuset="0-31", mask_of_pid_1="0-3")

    (binder,) = foreign_binders({}, host, modules=())

    assert binder.name == "CPUAffinity"
    assert binder.seen == ("this process may run on 0-3 while its cgroup grants 0-31, and so it is from PID 1 on")


def test_a_process_started_under_taskset_is_told_from_pid_1(host: HostRoot) -> None:
    describe_process(host, mask="0-3", cpuset="0-31", mask_of_pid_1="0-31")

    (binder,) = foreign_binders({}, host, modules=())

    assert (binder.name, binder.turn_off) == ("affinity", "start it without taskset, numactl or srun's binding")


def test_what_cpuplan_run_has_left_the_process_is_no_binder(host: HostRoot) -> None:
    describe_process(host, mask="1-31", cpuset="0-31", mask_of_pid_1="1-31")

    assert names({"CPUPLAN_POOL_CPUS": "1-31"}, host) == []
    assert names({"CPUPLAN_POOL_CPUS": "2-31"}, host) == ["CPUAffinity"]


def test_openmps_variables_that_cpuplan_env_printed_are_no_binder(host: HostRoot) -> None:
    printed = openmp_variables(4, parse_cpu_list("1-3,5,8-9"))

    assert names(printed, host) == []
    assert names({name: printed[name] for name in ("OMP_PLACES", "CPUPLAN_POOL_CPUS")}, host) == []


@pytest.mark.parametrize(
    ("variable", "value"), [("OMP_PLACES", "cores"), ("OMP_PLACES", "{0:4}"), ("CPUPLAN_POOL_CPUS", "everything")]
)
def test_openmp_on_other_places_than_those_printed_is_a_binder(host: HostRoot, variable: str, value: str) -> None:
    printed = openmp_variables(4, parse_cpu_list("1-3,5,8-9"))

    assert names(printed | {variable: value}, host) == ["OMP_PROC_BIND"]


def test_another_openmp_runtimes_variable_stays_a_binder_beside_the_printed_ones(host: HostRoot) -> None:
    printed = openmp_variables(4, parse_cpu_list("1-3"))

    assert names(printed | {"KMP_AFFINITY": "compact"}, host) == ["KMP_AFFINITY"]


def test_a_mask_of_exactly_the_pools_cpus_is_no_binder(host: HostRoot) -> None:
    """So does a command run that was started by `taskset $(cpuplan env -o taskset)`."""
    describe_process(host, mask="1-30", cpuset="0-31", mask_of_pid_1="0-31")

    assert foreign_binders({}, host, modules=(), pool_cpus=parse_cpu_list("1-30")) == []
    (binder,) = foreign_binders({}, host, modules=(), pool_cpus=parse_cpu_list("2-30"))
    assert binder.name == "affinity"


def test_a_main_thread_that_the_plan_pins_is_no_binder(host: HostRoot) -> None:
    describe_process(host, mask="4", cpuset="0-31", mask_of_pid_1="0-31")
    install(CpuPlan(frozenset(range(32)), 8, (StepCpus(frozenset({4}), ""),), 31, "", "pinned"))
    try:
        assert names({}, host) == []
    finally:
        install(None)


def test_a_mask_as_wide_as_the_cpuset_is_no_binder(host: HostRoot) -> None:
    describe_process(host, mask="0-31", cpuset="0-31", mask_of_pid_1="0-31")

    assert names({}, host) == []


@pytest.mark.parametrize("policy", ["bind:0", "interleave:0-1", "prefer:1"])
def test_a_memory_policy_is_the_trace_of_numactl(host: HostRoot, policy: str) -> None:
    (host.proc / "self" / "numa_maps").write_text(f"00400000 {policy} file=/usr/bin/python3 mapped=4\n")

    assert names({}, host) == ["numactl"]


def test_the_default_memory_policy_is_no_binder(host: HostRoot) -> None:
    (host.proc / "self" / "numa_maps").write_text("00400000 default file=/usr/bin/python3 mapped=4\n")

    assert names({}, host) == []


def test_files_that_cannot_be_read_are_no_binders(tmp_path: Path) -> None:
    assert names({}, HostRoot.at(tmp_path / "bare")) == []
