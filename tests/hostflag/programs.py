"""Runs small programs in interpreters of their own: for what concerns a whole process."""

import subprocess
import sys
import textwrap
from pathlib import Path

PREAMBLE = """
import ctypes, os, signal, sys
from hostflag_native import HostFlagCore, StreamSyncError
from hostflag_native.selftest.rounds import publish_bytes
from hostflag_native.shared_page import SharedPage

def words(core):
    return [int(core.lib.dsv41_hf_load(core.page + offset)) for offset in (0, 128, 256, 384)]

def set_words(core, value):
    for offset in (0, 128, 256, 384):
        core.lib.dsv41_hf_set(core.page + offset, value)

START = int(sys.argv[1])
"""


def run_program(text: str, start: int = 0, *, limit_seconds: float = 30, **environment: str) -> str:
    """What the program prints; it must end with 0 and complain about nothing."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PREAMBLE + textwrap.dedent(text), str(start)],
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_seconds,
        env=environment or None,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.strip()


def is_alive(process_id: int) -> bool:
    """Whether the process is there and has not ended; one that was killed takes a moment to end."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
