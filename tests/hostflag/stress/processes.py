"""The process stress: proxies answer, are late, die anywhere or are killed, while a stream checks every round.

`python -m tests.hostflag.stress.processes --rounds 10000000` plays many lives of a proxy process, each on a page whose
words start just below 2^32, with the engine's half as engines have it: HostFlagCore with its watchdog and watch_proxy.
Exit 0 and a line of figures, or exit 1 and the violation.
"""

import argparse
import ctypes
import random
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from hostflag_native import HostFlagCore
from hostflag_native.native_library import SOURCE_DIR
from hostflag_native.shared_page import SharedPage

HERE = Path(__file__).parent
REPLY_BYTES = 128
STATUS = -4
DEADLINE_MS = 1.0
LIFE_ROUNDS = 10_000
"""Rounds that a proxy would live at most; half of them kill themselves within these."""

ROUNDS_AFTER_FAILURE = 50
KILLED_FROM_OUTSIDE = 0.25
"""Share of lives that another process ends, at a random moment."""


class Result(ctypes.Structure):
    """struct stress_result."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("rounds", "failed", "slow", "is_failed_ahead")]


@dataclass(slots=True)
class Totals:
    """What all lives came to."""

    rounds: int = 0
    failed: int = 0
    slow: int = 0
    lives: int = 0
    deaths: int = 0
    failed_ahead: int = 0


class ViolationError(Exception):
    """The stream met what must never happen."""


def build(directory: Path) -> tuple[Path, ctypes.CDLL]:
    """The proxy program and the stream's library, each with the real hostflag.c in it."""
    proxy, stream = directory / "proxy", directory / "stream.so"
    common = ["cc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{SOURCE_DIR}"]
    hostflag = str(SOURCE_DIR / "hostflag.c")
    subprocess.run([*common, "-o", proxy, HERE / "proxy.c", hostflag], check=True)
    subprocess.run([*common, "-fPIC", "-shared", "-o", stream, HERE / "stream.c", hostflag], check=True)
    library = ctypes.CDLL(str(stream))
    library.stress_stream.restype = ctypes.c_char_p
    library.stress_stream.argtypes = (
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_uint32,
        ctypes.c_uint32,
        ctypes.c_int32,
        ctypes.c_void_p,
    )
    return proxy, library


def play_life(proxy: Path, stream: ctypes.CDLL, rng: random.Random, totals: Totals, life_rounds: int) -> None:
    """One proxy's life: its rounds, its end, and some rounds after that.

    Raises:
        ViolationError: what the stream met.
    """
    page = SharedPage()
    engine = HostFlagCore(page=page.address)
    first = (2**32 - rng.randrange(1, life_rounds)) % 2**32
    for word in (engine.gathered_host, engine.released_host, engine.claimed_host, engine.consumed_host):
        engine.lib.dsv41_hf_set(word, first - 1)
    engine.attach(REPLY_BYTES, STATUS, DEADLINE_MS, poll_us=100)
    arguments = [proxy, str(page.descriptor), str(first), str(life_rounds), str(rng.getrandbits(31))]
    with subprocess.Popen(arguments, pass_fds=(page.descriptor,)) as process:
        killer = threading.Timer(rng.uniform(0, 0.01), process.kill)
        if rng.random() < KILLED_FROM_OUTSIDE:
            killer.start()
        engine.watch_proxy(process.pid)
        result = Result()
        violation = stream.stress_stream(
            page.address, first, life_rounds, ROUNDS_AFTER_FAILURE, STATUS, ctypes.byref(result)
        )
        killer.cancel()
    engine.close()
    page.close()
    if violation is not None:
        raise ViolationError(f"{violation.decode()} (life {totals.lives}, first round {first})")
    totals.lives += 1
    totals.rounds += result.rounds
    totals.failed += result.failed
    totals.slow += result.slow
    totals.failed_ahead += result.is_failed_ahead
    totals.deaths += process.returncode != 0


def play(round_count: int, seed: int, life_rounds: int = LIFE_ROUNDS) -> Totals:
    """Lives until so many rounds are played."""
    rng = random.Random(seed)  # noqa: S311  a schedule, not a secret
    totals = Totals()
    with tempfile.TemporaryDirectory() as directory:
        proxy, stream = build(Path(directory))
        while totals.rounds < round_count:
            play_life(proxy, stream, rng, totals, life_rounds)
    return totals


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1)
    namespace = parser.parse_args()
    try:
        sys.stdout.write(f"{play(namespace.rounds, namespace.seed)}\n")
    except ViolationError as error:
        sys.stderr.write(f"violation: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
