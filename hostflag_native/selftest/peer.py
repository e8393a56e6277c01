"""The proxy in a process of its own, for the checks that need two: it serves, dies at a point, or is measured."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

from hostflag_native.core import HostFlagCore
from hostflag_native.process_command import program_command
from hostflag_native.selftest.rounds import STEP_SECONDS, publish_bytes, reply_of
from hostflag_native.shared_page import SharedPage

_EXIT_SECONDS: Final = 5.0
"""How long a peer may take to end by itself after its last round, in s."""


class PeerRole(StrEnum):
    """What a peer does with the rounds it sees gathered."""

    SERVE = "serve"
    DIE_BEFORE_CLAIM = "die-before-claim"
    DIE_AFTER_CLAIM = "die-after-claim"
    DIE_AFTER_RELEASE = "die-after-release"


@contextlib.contextmanager
def peer_process(page: SharedPage, task: "PeerTask") -> Iterator["subprocess.Popen[bytes]"]:
    """A peer on the page; ended when the block ends, however that is."""
    command = program_command("peer", str(os.getpid()), str(page.descriptor), json.dumps(asdict(task)))
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=(page.descriptor,)
    )
    try:
        yield process
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_EXIT_SECONDS)
    finally:
        process.kill()
        process.communicate()


@dataclass(frozen=True, slots=True)
class PeerTask:
    """What a peer is told: its role, and its rounds; one that is to die serves all but the last."""

    role: PeerRole
    first: int
    count: int
    reply_bytes: int
    lib_path: str

    @classmethod
    def from_json(cls, text: str) -> "PeerTask":
        """What a peer's command line says."""
        document = json.loads(text)
        return cls(**(document | {"role": PeerRole(document["role"])}))


def serve_as_peer(task: PeerTask, page: SharedPage) -> int:
    """The peer's whole life; returns its exit code unless it dies before."""
    core = HostFlagCore(task.lib_path, spin_us=50, nap_us=20, page=page.address)
    for round_number in range(task.first, task.first + task.count):
        if not core.wait_gathered(round_number, 2 * STEP_SECONDS):
            return 1
        is_last = round_number == task.first + task.count - 1
        if is_last and task.role is PeerRole.DIE_BEFORE_CLAIM:
            _die()
        if is_last and task.role is PeerRole.DIE_AFTER_CLAIM:
            core.lib.dsv41_hf_claim(core.claimed_host, round_number % 2**32)
            _die()
        publish_bytes(core, round_number, reply_of(round_number, task.reply_bytes))
        if is_last and task.role is PeerRole.DIE_AFTER_RELEASE:
            _die()
    return 0


def _die() -> None:
    """As a proxy does that is killed: nothing runs after it."""
    os.kill(os.getpid(), signal.SIGKILL)
