"""Thread-count variables: set where the user set none, and undone."""

from __future__ import annotations

import pytest

from cpuplan.inprocess.environment import set_thread_variables, thread_variables, threads_per_process
from cpuplan.model.plan import CpuPlan, StepCpus
from cpuplan.model.pools import THREAD_VARIABLES

NAMES = [variable.name for variable in THREAD_VARIABLES]
PLAN = CpuPlan(frozenset(range(32)), 12, (StepCpus(frozenset({0}), ""),), 31, "", "pinned")


def test_every_library_that_the_specification_names_is_among_them() -> None:
    named = {
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "NUMEXPR_MAX_THREADS",
        "VECLIB_MAXIMUM_THREADS",
        "RAYON_NUM_THREADS",
        "TOKIO_WORKER_THREADS",
        "GOMAXPROCS",
        "BLIS_NUM_THREADS",
    }

    assert named <= set(NAMES)
    assert len(NAMES) == len(set(NAMES))


def test_pools_get_what_pins_leave_of_the_quota() -> None:
    environ: dict[str, str] = {}

    set_thread_variables(PLAN, environ=environ)

    assert environ == dict.fromkeys(NAMES, "10")


def test_several_processes_share_it() -> None:
    environ: dict[str, str] = {}

    set_thread_variables(PLAN, 4, environ=environ)

    assert environ["OMP_NUM_THREADS"] == "2"


@pytest.mark.parametrize(("left", "processes", "threads"), [(10, 1, 10), (10, 3, 3), (1, 8, 1), (10, 0, 10), (0, 0, 1)])
def test_every_process_gets_at_least_one_thread(left: int, processes: int, threads: int) -> None:
    assert threads_per_process(left, processes) == threads


def test_what_the_user_has_set_is_left_even_where_it_is_empty() -> None:
    environ = {"OMP_NUM_THREADS": "3", "GOMAXPROCS": ""}

    set_thread_variables(PLAN, environ=environ)

    assert (environ["OMP_NUM_THREADS"], environ["GOMAXPROCS"], environ["MKL_NUM_THREADS"]) == ("3", "", "10")


def test_undo_removes_what_was_set_and_nothing_else() -> None:
    environ = {"OMP_NUM_THREADS": "3", "PATH": "/bin"}
    undo = set_thread_variables(PLAN, environ=environ)
    environ["MKL_NUM_THREADS"] = "7"

    undo()

    assert environ == {"OMP_NUM_THREADS": "3", "PATH": "/bin", "MKL_NUM_THREADS": "7"}


def test_asking_for_the_variables_changes_nothing() -> None:
    environ = {"OMP_NUM_THREADS": "3"}

    chosen = thread_variables(5, environ)

    assert environ == {"OMP_NUM_THREADS": "3"}
    assert "OMP_NUM_THREADS" not in chosen
    assert chosen["GOMAXPROCS"] == "5"
