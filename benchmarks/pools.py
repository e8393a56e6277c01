"""What thread pools sized by a plan gain under a CPU quota: numpy's pool by default, against `cpuplan run`.

Makes a cgroup with a CPU quota (root, cgroup v1 or v2), runs the same fork-join work in it as a user would start it,
once as it is and once through `cpuplan run --`, in turn, and prints operations per second and their ratio.

    PYTHONPATH=operator:. python -m benchmarks.pools [--quota 0.5] [--rounds 5] [--seconds 4]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
PERIOD_US = 100_000

WORK = """
import sys, time
import numpy
a = numpy.random.default_rng(0).random((192, 192), dtype=numpy.float32)
a @ a
end = time.monotonic() + float(sys.argv[1])
began, count = time.monotonic(), 0
while time.monotonic() < end:
    for _ in range(8):
        a @ a
    count += 8
print(count / (time.monotonic() - began))
"""
"""Small matrix products, as a decoder's layers make them: each is one fork and one join of the pool."""


@contextmanager
def limited_cgroup(quota: float) -> Iterator[Path]:
    """A cgroup whose processes get `quota` CPUs; removed afterwards."""
    is_v1 = not (CGROUP / "cgroup.controllers").exists()
    folder = (CGROUP / "cpu" if is_v1 else CGROUP) / f"cpuplan-benchmark-{os.getpid()}"
    folder.mkdir()
    try:
        if is_v1:
            (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (folder / "cpu.cfs_quota_us").write_text(str(int(quota * PERIOD_US)))
        else:
            (folder / "cpu.max").write_text(f"{int(quota * PERIOD_US)} {PERIOD_US}")
        yield folder
    finally:
        folder.rmdir()


def operations_per_second(cgroup: Path, prefix: list[str], seconds: float) -> float:
    """What the work achieves when it is started in the cgroup with `prefix` before its command line."""

    def enter() -> None:
        (cgroup / "cgroup.procs").write_text(str(os.getpid()))

    command = [*prefix, sys.executable, "-c", WORK, str(seconds)]
    done = subprocess.run(command, preexec_fn=enter, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quota", type=float, default=0.5, help="CPUs of the cgroup (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each kind, in turn (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a run (default: %(default)s)")
    options = parser.parse_args()
    planned = [sys.executable, "-m", "cpuplan", "run", "--"]
    rates: dict[str, list[float]] = {"as it is": [], "cpuplan run": []}
    with limited_cgroup(options.quota) as cgroup:
        for _ in range(options.rounds):
            rates["as it is"].append(operations_per_second(cgroup, [], options.seconds))
            rates["cpuplan run"].append(operations_per_second(cgroup, planned, options.seconds))
    base = statistics.median(rates["as it is"])
    print(
        f"host CPUs {os.cpu_count()}, quota {options.quota} CPUs, {options.rounds} runs of {options.seconds:g} s each"
    )
    for name, values in rates.items():
        middle = statistics.median(values)
        print(f"{name:12} {middle:10.0f} products/s  {middle / base:6.2f}x")


if __name__ == "__main__":
    main()
