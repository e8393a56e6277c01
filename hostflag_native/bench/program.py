"""The benchmark's program: its arguments, its run, and where the figures go."""

import argparse
import importlib.util
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hostflag_native.bench.bars import bars
from hostflag_native.bench.contestants import Pair
from hostflag_native.bench.costs import measure_lateness, measure_publish, measure_waiting
from hostflag_native.bench.figures import Conditions, Figures
from hostflag_native.bench.idle import measure_idle_wakes
from hostflag_native.bench.machine import MachineFiles, read_machine, stolen_seconds, throttled_us
from hostflag_native.bench.peers import process_peer, thread_peer
from hostflag_native.bench.slices import Schedule, measure_pair
from hostflag_native.bench.text import as_text
from hostflag_native.core import HostFlagCore
from hostflag_native.errors import StreamSyncError
from hostflag_native.exchange import Cpus, ExchangeFailedError, two_allowed_cpus
from hostflag_native.library import LIB_PATH_VARIABLE
from hostflag_native.timer_slack import set_timer_slack

DEFAULT_ROUNDS: Final = 100_000

LATENESS_SHARE: Final = 0.02
"""Rounds of the watchdog's lateness per round asked for: each takes about 4 ms with the naps beside it."""

WAITING_SECONDS_PER_ROUND: Final = 1e-5
"""How long each way to wait is watched, in s per round asked for; at most a second."""

IDLE_SHARE: Final = 0.0003
"""Rounds that end an idle wait per round asked for: each takes about 0.15 s."""

FEWEST_IDLE_ROUNDS: Final = 3

STANDARD_OUTPUT: Final = "-"


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """What is asked of the benchmark."""

    schedule: Schedule
    lib_path: str
    json_path: str
    must_meet_bars: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `bench`."""
    parser.add_argument(
        "--cpus", type=_two_cpus, metavar="A,B", help="the CPUs of stream and proxy (default: the first two allowed)"
    )
    parser.add_argument(
        "--rounds",
        type=_positive,
        default=DEFAULT_ROUNDS,
        metavar="N",
        help=f"rounds of each spinning contestant; slower ones make fewer (default: {DEFAULT_ROUNDS})",
    )
    parser.add_argument(
        "--json",
        default="",
        metavar="FILE",
        help="write the figures there too; -: to standard output, without the table",
    )
    parser.add_argument(
        "--require-bars", action="store_true", help="exit with 1 where a bar is missed, however busy the machine is"
    )
    parser.add_argument(
        "--lib",
        default=os.environ.get(LIB_PATH_VARIABLE, ""),
        metavar="FILE",
        help=f"the library (${LIB_PATH_VARIABLE})",
    )


def request_of(namespace: argparse.Namespace) -> BenchRequest:
    """The parsed arguments as a value."""
    schedule = Schedule(namespace.rounds, namespace.cpus or two_allowed_cpus())
    return BenchRequest(schedule, namespace.lib, namespace.json, namespace.require_bars)


def run(request: BenchRequest) -> int:
    """Measures and tells; returns 0.

    1, with a sentence on standard error: something could not be measured, or a bar is missed that has to be met.
    """
    if importlib.util.find_spec("numpy") is None:
        print("bench: numpy is missing; install cpuplan[hostflag]", file=sys.stderr)  # noqa: T201
        return 1
    try:
        figures = measure(request)
        document = json.dumps(_document(figures), indent=1)
        if request.json_path != STANDARD_OUTPUT:
            print(as_text(figures, bars(figures)))  # noqa: T201  the program's answer
        if request.json_path == STANDARD_OUTPUT:
            print(document)  # noqa: T201
        elif request.json_path:
            Path(request.json_path).write_text(document + "\n", encoding="utf-8")
    except (ExchangeFailedError, StreamSyncError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)  # noqa: T201
        return 1
    missed = [bar.name for bar in bars(figures) if not bar.is_met]
    if request.must_meet_bars and missed:
        print(f"bench: missed: {'; '.join(missed)}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def measure(request: BenchRequest) -> Figures:
    """All figures of one run.

    Raises:
        ExchangeFailedError: a side did not answer.
        StreamSyncError: no library, or no page.
    """
    files, schedule = MachineFiles(), request.schedule
    stream_cpu, proxy_cpu = schedule.cpus
    started, load_before = time.monotonic(), os.getloadavg()[0]
    throttled_before, stolen_before = throttled_us(files), stolen_seconds(files, schedule.cpus)
    core = HostFlagCore(request.lib_path, spin_us=1000, nap_us=0)
    with thread_peer(core.lib, request.lib_path, proxy_cpu) as peer:
        rows = measure_pair(Pair.THREADS, peer, schedule)
    with process_peer(request.lib_path, proxy_cpu) as other:
        rows += measure_pair(Pair.PROCESSES, other, schedule)
    publish = measure_publish(core, stream_cpu, schedule.rounds)
    waiting = measure_waiting(core, request.lib_path, stream_cpu, min(1.0, schedule.rounds * WAITING_SECONDS_PER_ROUND))
    idle_rounds = max(FEWEST_IDLE_ROUNDS, int(schedule.rounds * IDLE_SHARE))
    idle_wakes = measure_idle_wakes(core, request.lib_path, schedule.cpus, idle_rounds)
    lateness = measure_lateness(core, schedule.cpus, max(1, int(schedule.rounds * LATENESS_SHARE)))
    core.close()
    return Figures(
        machine=read_machine(files, schedule.cpus),
        conditions=Conditions(
            load_before=load_before,
            load_after=os.getloadavg()[0],
            throttled_us=throttled_us(files) - throttled_before,
            stolen_seconds=stolen_seconds(files, schedule.cpus) - stolen_before,
            can_set_timer_slack=set_timer_slack(),
            slice_count=schedule.slice_count,
            seconds=time.monotonic() - started,
        ),
        rows=tuple(rows),
        publish=publish,
        lateness=lateness,
        waiting=tuple(waiting),
        idle_wakes=idle_wakes,
    )


def _document(figures: Figures) -> dict[str, Any]:
    return {**figures.as_json(), "bars": [bar.as_json() for bar in bars(figures)]}


def _two_cpus(text: str) -> Cpus:
    parts = text.split(",")
    allowed = sorted(os.sched_getaffinity(0))
    if len(parts) != 2 or not all(part.strip().isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not two CPUs, as in 2,3")
    first, second = (int(part) for part in parts)
    for cpu in (first, second):
        if cpu not in allowed:
            raise argparse.ArgumentTypeError(f"CPU {cpu} is not among those this process may use: {allowed}")
    return first, second


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rounds, expected 1 or more")
    return int(text)
