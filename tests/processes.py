"""Programs that a test starts and stops, by process id; the kernel ends them when the test process dies."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 60.0
"""Limit for a program to become ready; etcd and kube-apiserver take about 3 s on an idle two-core machine."""

STOP_SECONDS = 20.0
"""How long a program may take to end after SIGTERM before it is killed."""

POLL_SECONDS = 0.05
"""Pause between two looks at a program that is starting."""


class NotReadyError(RuntimeError):
    """A program ended or was not ready within its limit; the text ends with the tail of its log."""


@contextmanager
def running_process(arguments: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The program, running, with both outputs in `log`; terminated and waited for when the block ends.

    setpriv makes the kernel kill it when the test process dies, so that a killed run leaves nothing behind.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until_ready(process: subprocess.Popen[bytes], log: Path, is_ready: Callable[[], bool]) -> None:
    """Returns once `is_ready` says so.

    Raises:
        NotReadyError: the program ended first, or START_SECONDS went by.
    """
    deadline = time.monotonic() + START_SECONDS
    while not is_ready():
        ended = process.poll()
        if ended is not None or time.monotonic() > deadline:
            state = f"ended with {ended}" if ended is not None else f"was not ready after {START_SECONDS:.0f} s"
            tail = log.read_text(errors="replace")[-2000:]
            raise NotReadyError(f"{log.stem} {state}; its log {log} ends with:\n{tail}")
        time.sleep(POLL_SECONDS)


def free_ports(count: int) -> list[int]:
    """Loopback TCP ports that nothing listened on just now, all different."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def accepts(port: int) -> bool:
    """Whether something accepts connections on that loopback port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
