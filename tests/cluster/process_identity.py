"""Processes by an identity that survives the process number being given to another program."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.cluster.console import ClusterError

POLL_SECONDS = 0.05
"""Pause between two looks at a process that is ending."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process: its number, its start in clock ticks since boot, and the boot it belongs to."""

    pid: int
    start_ticks: int
    boot_id: str

    def is_running(self) -> bool:
        """Whether exactly this process still runs (a zombie has ended)."""
        return identify(self.pid) == self

    def write(self, path: Path) -> None:
        """Keeps the identity in a file, for `read`."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of the process that has this number now; None where none has, or it has ended.

    Source: proc_pid_stat(5), fields 3 (state) and 22 (starttime); the second field may contain blanks.
    """
    try:
        fields = _stat_fields(pid)
    except OSError:
        return None
    return None if fields[0] in "ZX" else ProcessIdentity(pid, int(fields[19]), _boot_id())


def _stat_fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()


def start_daemon(command: Sequence[str], log: Path) -> ProcessIdentity:
    """Starts a program that outlives us, in a session of its own, with both its outputs in `log`.

    posix_spawn, since a Popen object would want to be waited for.

    Raises:
        ClusterError: no such program.
    """
    program = shutil.which(command[0])
    if program is None:
        raise ClusterError(f"{command[0]} is not installed")
    outputs = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    pid = os.posix_spawn(program, list(command), os.environ, file_actions=outputs, setsid=True)
    # Until it is waited for, even an ended child keeps its number, so this cannot be another's.
    fields, boot_id = _stat_fields(pid), _boot_id()
    return ProcessIdentity(pid, int(fields[19]), boot_id)


def read(path: Path) -> ProcessIdentity | None:
    """The identity in that file; None where there is no such file or it is damaged (a killed run wrote it)."""
    try:
        return ProcessIdentity(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def command_line(pid: int) -> list[str]:
    """The arguments of a process; empty for one that has ended and for kernel threads."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def all_pids() -> list[int]:
    """The numbers of all processes that run now."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def end(identity: ProcessIdentity, *, limit_seconds: float) -> None:
    """Asks the process to end and waits; kills it after the limit. Nothing happens where it has ended already.

    Raises:
        ClusterError: it outlived the kill as well.
    """
    for number, seconds in ((signal.SIGTERM, limit_seconds), (signal.SIGKILL, 10.0)):
        if not identity.is_running():
            return
        os.kill(identity.pid, number)
        deadline = time.monotonic() + seconds
        while identity.is_running() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
    if identity.is_running():
        raise ClusterError(f"process {identity.pid} ({' '.join(command_line(identity.pid)[:1])}) cannot be ended")
