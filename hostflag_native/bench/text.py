"""A run's figures as a table for people: plain text, a line per row."""

from collections.abc import Iterator

from hostflag_native.bench.bars import Bar
from hostflag_native.bench.contestants import Pair
from hostflag_native.bench.figures import Figures
from hostflag_native.probe import Distribution

_NAME_WIDTH = 38
_COLUMNS = ("rounds", "min", "p50", "p99", "p99.9", "max", "p50/limit", "p99/limit")


def as_text(figures: Figures, bars: tuple[Bar, ...]) -> str:
    """The whole run."""
    return "\n".join((*_heading(figures), *_rows(figures), *_costs(figures), *_bars(bars)))


def _heading(figures: Figures) -> Iterator[str]:
    machine, conditions = figures.machine, figures.conditions
    virtual = ", virtual" if machine.hypervisor else ""
    yield f"CPUs {machine.cpus[0]} and {machine.cpus[1]} ({machine.core_distance}) of {machine.cpu_count}"
    yield f"{machine.cpu_model}{virtual}; Linux {machine.kernel}; Python {machine.python}"
    limit = "no CPU limit" if machine.cpu_limit is None else f"CPU limit {machine.cpu_limit:g}"
    yield (
        f"load {conditions.load_before:.1f} before, {conditions.load_after:.1f} after; {limit}, "
        f"throttled {conditions.throttled_us / 1e6:.1f} s, stolen {conditions.stolen_seconds:.2f} s; "
        f"{conditions.slice_count} slices in {conditions.seconds:.0f} s"
    )
    if not conditions.can_set_timer_slack:
        yield "timer slack cannot be set: naps are stretched by the default slack"


def _rows(figures: Figures) -> Iterator[str]:
    for pair in Pair:
        yield ""
        yield f"{f'between two {pair}, us':{_NAME_WIDTH}}" + _cells(_COLUMNS)
        for row in figures.rows:
            if row.pair is not pair:
                continue
            ratios = figures.ratios(row)
            over_limit = ("-", "-") if ratios is None else tuple(_ratio(ratio) for ratio in ratios)
            yield f"{row.label:{_NAME_WIDTH}}" + _cells((*_times(row.times), *over_limit))


def _costs(figures: Figures) -> Iterator[str]:
    publish, copy = figures.publish.publish, figures.publish.copy
    late = figures.lateness
    yield ""
    yield f"{'other, us':{_NAME_WIDTH}}" + _cells(_COLUMNS[:-2])
    yield f"{'publish of 4 KiB':{_NAME_WIDTH}}" + _cells(_times(publish))
    yield f"{'memcpy of 4 KiB and a store':{_NAME_WIDTH}}" + _cells(_times(copy))
    yield f"{'idle wait, stream to proxy in Python':{_NAME_WIDTH}}" + _cells(_times(figures.idle_wakes))
    name = f"watchdog after {late.deadline_ns / 1e6:g} ms (poll {late.poll_ns / 1e3:g} us)"
    yield f"{name:{_NAME_WIDTH}}" + _cells(_times(late.since_gathered))
    nap_name = f"naps of {late.poll_ns / 1e3:g} us for {late.deadline_ns / 1e6:g} ms (the limit)"
    yield f"{nap_name:{_NAME_WIDTH}}" + _cells(_times(late.of_naps))
    yield f"{'watchdog since it saw the round':{_NAME_WIDTH}}" + _cells(("", "", "", "", "", _us(late.own_max_ns)))
    yield ""
    yield f"{'waiting for nothing':{_NAME_WIDTH}}" + _cells(("CPU",))
    for cost in figures.waiting:
        yield f"{cost.way:{_NAME_WIDTH}}" + _cells((f"{cost.cpu_share:.2%}",))


def _bars(bars: tuple[Bar, ...]) -> Iterator[str]:
    yield ""
    for bar in bars:
        relation = "at least" if bar.is_at_least else "at most"
        verdict = "met   " if bar.is_met else "MISSED"
        yield f"{verdict} {bar.name}: {bar.value:.3g}{bar.unit}, {relation} {bar.bound:g}{bar.unit}"


def _times(times: Distribution) -> tuple[str, ...]:
    spread = (times.min_ns, times.p50_ns, times.p99_ns, times.p999_ns, times.max_ns)
    return (str(times.count), *(_us(value) for value in spread))


def _us(ns: float) -> str:
    return f"{ns / 1000:.3f}" if abs(ns) < 10_000 else f"{ns / 1000:.1f}"


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _cells(values: tuple[str, ...]) -> str:
    return "".join(f"{value:>10}" for value in values)
