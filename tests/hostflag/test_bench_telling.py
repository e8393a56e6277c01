"""The machine, the bars and the table, from values: no measurement here."""

import os
import platform
from dataclasses import replace
from pathlib import Path

import pytest

from hostflag_native.__main__ import main
from hostflag_native.bench.bars import Bar, bars
from hostflag_native.bench.contestants import Label, Measure, Pair
from hostflag_native.bench.costs import Lateness, PublishCost, Waiting, WaitingCost
from hostflag_native.bench.figures import Conditions, Figures
from hostflag_native.bench.machine import Machine, MachineFiles, read_machine, stolen_seconds
from hostflag_native.bench.slices import Row
from hostflag_native.bench.text import as_text
from hostflag_native.probe import Distribution

MACHINE = Machine("Model 1", True, "6.1", "3.11.2", 8, (2, 3), "one socket", None)
CONDITIONS = Conditions(1.0, 2.0, 0, 0.0, True, 20, 3.0)


def _times(p50_ns: float, p99_ns: float, min_ns: float = 1) -> Distribution:
    return Distribution(100, min_ns, p50_ns, p99_ns, p99_ns, p99_ns)


def _row(label: Label, p50_ns: float, p99_ns: float, measure: Measure = Measure.ROUND_TRIP) -> Row:
    return Row(Pair.THREADS, label, measure, _times(p50_ns, p99_ns))


FIGURES = Figures(
    MACHINE,
    CONDITIONS,
    (
        _row(Label.BARE, 100, 200),
        _row(Label.HANDOFF, 115, 301),
        _row(Label.SPIN_THERE, 55, 100, Measure.THERE),
        _row(Label.NAP_THERE, 70_000, 80_000, Measure.THERE),
        _row(Label.PYTHON, 1000, 2000),
        _row(Label.THREADING_EVENT, 10_000, 20_000),
    ),
    PublishCost(_times(60, 61), _times(50, 51)),
    Lateness(_times(100, 1_200_001, 0), _times(50, 60), 90, 2_000_000, 200_000),
    (WaitingCost(Waiting.NAP, 0.2), WaitingCost(Waiting.IDLE_NAP, 0.03)),
    _times(1_020_000, 1_100_000),
)


def _met(figures: Figures) -> dict[str, bool]:
    return {bar.name: bar.is_met for bar in bars(figures)}


def test_each_bar_is_judged_at_its_bound() -> None:
    assert _met(FIGURES) == {
        "round trip over the limit, p50, threads": True,
        "round trip over the limit, p99, threads": False,
        "threading.Event over hand-off, spin, proxy in Python, p50": True,
        "CPU of a wait that naps 50 us": False,
        "CPU of an idle wait": True,
        "wake from naps of 50 us, p50, threads": True,
        "wake of an idle wait, p50": True,
        "publish of 4 KiB over memcpy and a store, p50": True,
        "watchdog, earliest after the deadline": True,
        "watchdog, lateness, p99.9": False,
    }


def test_a_watchdog_that_was_early_misses_its_bar() -> None:
    early = replace(FIGURES, lateness=replace(FIGURES.lateness, since_gathered=_times(100, 200, -1)))
    assert not _met(early)["watchdog, earliest after the deadline"]


def test_waking_is_not_judged_where_timer_slack_cannot_be_set() -> None:
    stretched = replace(FIGURES, conditions=replace(CONDITIONS, can_set_timer_slack=False))
    assert [name for name in _met(stretched) if name.startswith("wake")] == []
    assert "timer slack cannot be set: naps are stretched by the default slack" in as_text(stretched, ())


def test_a_one_way_row_is_held_against_half_the_limit() -> None:
    assert FIGURES.ratios(FIGURES.rows[2]) == (1.1, 1.0)


def test_without_the_limit_there_is_no_ratio() -> None:
    without = replace(FIGURES, rows=FIGURES.rows[1:])
    assert without.ratios(without.rows[0]) is None
    assert "round trip over the limit, p50, threads" not in _met(without)


@pytest.mark.parametrize(("arguments", "exit_code"), [([], 0), (["--require-bars"], 1)])
def test_a_missed_bar_fails_the_run_where_bars_are_required(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], exit_code: int
) -> None:
    monkeypatch.setattr("hostflag_native.bench.program.measure", lambda _: FIGURES)

    assert main(["bench", *arguments]) == exit_code

    missed = "round trip over the limit, p99, threads; CPU of a wait that naps 50 us; watchdog, lateness, p99.9"
    assert capsys.readouterr().err == (f"bench: missed: {missed}\n" if exit_code else "")


def test_met_bars_pass_where_bars_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    met = replace(FIGURES, rows=(), waiting=(), lateness=replace(FIGURES.lateness, since_gathered=_times(100, 200, 0)))
    met = replace(met, waiting=tuple(WaitingCost(way, 0.01) for way in (Waiting.NAP, Waiting.IDLE_NAP)))
    monkeypatch.setattr("hostflag_native.bench.program.measure", lambda _: met)

    assert main(["bench", "--require-bars"]) == 0


def test_the_table_says_machine_load_rows_and_bars() -> None:
    missed = Bar("nap", 18.234, 3.0, "%")
    text = as_text(FIGURES, (missed, Bar("early", 1.0, 0.0, "us", is_at_least=True)))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[:3] == [
        "CPUs 2 and 3 (one socket) of 8",
        "Model 1, virtual; Linux 6.1; Python 3.11.2",
        "load 1.0 before, 2.0 after; no CPU limit, throttled 0.0 s, stolen 0.00 s; 20 slices in 3 s",
    ]
    assert "hand-off, spin 100 0.001 0.115 0.301 0.301 0.301 1.15 1.50" in lines
    assert lines[-2:] == ["MISSED nap: 18.2%, at most 3%", "met early: 1us, at least 0us"]


@pytest.mark.parametrize(
    ("sockets", "cores", "cpus", "distance"),
    [
        ("00", "01", (0, 1), "one socket"),
        ("00", "44", (0, 1), "one core"),
        ("01", "44", (0, 1), "two sockets"),
        ("00", "01", (1, 1), "one CPU"),
        ("", "", (0, 1), "unknown"),
    ],
)
def test_the_distance_of_two_cpus(
    tmp_path: Path, sockets: str, cores: str, cpus: tuple[int, int], distance: str
) -> None:
    for cpu, (socket, core) in enumerate(zip(sockets, cores, strict=True)):
        topology = tmp_path / f"devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{socket}\n")
        (topology / "core_id").write_text(f"{core}\n")
    files = MachineFiles(tmp_path / "no-proc", tmp_path, tmp_path / "no-cgroup")
    assert read_machine(files, cpus).core_distance == distance


@pytest.mark.parametrize(
    ("cpuinfo", "model", "hypervisor"),
    [
        ("model name\t: Model 1\nflags\t\t: fpu hypervisor sse\n\nmodel name\t: Model 2\n", "Model 1", True),
        ("model name\t: Model 1\nflags\t\t: fpu sse\n", "Model 1", False),
        ("processor\t: 0\nFeatures\t: fp asimd\n", None, None),
    ],
    ids=["virtual", "real", "arm64-says-neither"],
)
def test_the_cpu_model_and_whether_it_is_virtual(
    tmp_path: Path, cpuinfo: str, model: str | None, hypervisor: bool | None
) -> None:
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    machine = read_machine(MachineFiles(tmp_path, tmp_path, tmp_path), (0, 1))
    assert machine.cpu_model == (model or platform.machine())
    assert machine.hypervisor is hypervisor


def test_stolen_time_is_that_of_the_two_cpus(tmp_path: Path) -> None:
    hertz = os.sysconf("SC_CLK_TCK")
    rows = [f"cpu{cpu} 1 1 1 1 1 1 1 {steal} 0 0" for cpu, steal in enumerate((hertz, 2 * hertz, 4 * hertz))]
    (tmp_path / "stat").write_text("\n".join(["cpu 9 9 9 9 9 9 9 9 0 0", *rows]))
    assert stolen_seconds(MachineFiles(tmp_path), (0, 2)) == 5
    assert stolen_seconds(MachineFiles(tmp_path / "none"), (0, 2)) == 0
