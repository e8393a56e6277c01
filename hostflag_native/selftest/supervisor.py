"""Runs the test in a forked child and keeps the time: whatever the child hangs in, its supervisor does not.

A driver call may hang with the interpreter lock held (while the driver is loaded, for one): no thread of that process
would end it in time then.
"""

import contextlib
import math
import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Final, NoReturn

from hostflag_native.core import HostFlagCore
from hostflag_native.errors import StreamSyncError
from hostflag_native.parent_death import end_with_parent
from hostflag_native.selftest.journal import Journal, teller
from hostflag_native.selftest.rounds import RESCUE_NS, rescues, stays_parked
from hostflag_native.selftest.shared_round import SharedRound
from hostflag_native.selftest.told import ENDED, Tell
from hostflag_native.selftest.verdict import Check, Outcome, interrupted

RESCUE_SECONDS: Final = 3 * RESCUE_NS / 1e9
"""What the rescues of a stream that stays parked take, in s; kept back from the time limit where a device is tested."""

_KILL_SECONDS: Final = 1.0
"""How long a killed child is waited for, in s: one that the driver holds in the kernel may never end."""

_LOOK_SECONDS: Final = 0.02
"""Time between two looks at a word, in s."""

_REAP_NAP_SECONDS: Final = 0.001
"""Nap between two looks at a child that was killed, in s: most are gone at once."""

_LONGEST_POLL_SECONDS: Final = 60.0
"""poll takes milliseconds as an int; whoever has more time calls again."""

_PIPE_BYTES: Final = 65536
"""What a pipe holds: one read takes all of it."""

_NOISE_BYTES: Final = 4096
"""How much is kept of what the child and the driver's library wrote to their standard streams."""

Test = Callable[[Tell], None]
"""Makes the checks, and tells of each and of each device."""


class Supervisor:
    """One test in a child, with what is known of it.

    The child is a process group of its own, so that its peers and compilers end with it, and it ends with this process.

    Attributes:
        journal: what the test has told.
        noise: the end of what it and the driver's library wrote to their standard streams.
    """

    def __init__(self, limit_seconds: float, shared_round: SharedRound | None, lib_path: str) -> None:
        """Starts the clock.

        Args:
            limit_seconds: from now on; a rescue takes its time from the end of it.
            shared_round: the device part's page, None where no device is tested.
            lib_path: the library, for the rescue.
        """
        reserve_seconds = min(RESCUE_SECONDS, limit_seconds / 2) if shared_round is not None else 0
        self._limit_seconds = limit_seconds
        self._give_up = time.monotonic() + limit_seconds - reserve_seconds
        self._round = shared_round
        self._lib_path = lib_path
        self._told = -1
        self._listeners: dict[int, Callable[[bytes], object]] = {}
        self._exit_code: int | None = None
        self.journal = Journal()
        self.noise = b""

    def run(self, test: Test) -> tuple[Check, ...]:
        """Runs the test; returns its checks, as the last one that which did not come to its end, if there is one.

        Raises:
            OSError: no process can be started.
            SystemExit: SIGTERM came; the child has been ended.
        """
        with _sigterm_raised(), self._child(test):
            while self._is_running() and (left_seconds := self._give_up - time.monotonic()) > 0:
                self._hear(left_seconds)
            self._hear(0)
            if self._is_running():
                checks = tuple(self.journal.checks)  # what the test finds once it was rescued is the rescue's doing
                return (*checks, self._cut_short(self.journal.running))
        checks = tuple(self.journal.checks)
        if self.journal.has_ended:
            return checks
        return (*checks, interrupted(self.journal.running, Outcome.FAIL, "selftest-crashed", self._last_words()))

    # ---- the child ----

    @contextlib.contextmanager
    def _child(self, test: Test) -> Iterator[None]:
        """The test runs; its process has ended when the block has, as far as it can be ended."""
        (self._told, tell), (noise, make_noise) = os.pipe(), os.pipe()
        parent_id = os.getpid()
        child_id = os.fork()
        if child_id == 0:
            _run_child(test, tell, make_noise, parent_id)
        with contextlib.suppress(OSError):  # the child does the same: whoever is first
            os.setpgid(child_id, child_id)
        os.close(tell)
        os.close(make_noise)
        self._listeners = {self._told: self.journal.take, noise: self._keep_noise}
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child_id, signal.SIGKILL)
            self._reap(child_id)
            self._hear(0)

    def _is_running(self) -> bool:
        return self._told in self._listeners and not self.journal.has_ended

    def _reap(self, child_id: int) -> None:
        give_up = time.monotonic() + _KILL_SECONDS
        while time.monotonic() < give_up:
            ended, status = os.waitpid(child_id, os.WNOHANG)
            if ended:
                self._exit_code = os.waitstatus_to_exitcode(status)
                return
            time.sleep(_REAP_NAP_SECONDS)

    def _hear(self, limit_seconds: float) -> None:
        """Takes what is there, or waits for a while until something is."""
        poll = select.poll()
        for descriptor in self._listeners:
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(math.ceil(min(limit_seconds, _LONGEST_POLL_SECONDS) * 1000)):
            received = os.read(descriptor, _PIPE_BYTES)
            if received:
                self._listeners[descriptor](received)
            else:
                del self._listeners[descriptor]
                os.close(descriptor)

    def _keep_noise(self, received: bytes) -> None:
        self.noise = (self.noise + received)[-_NOISE_BYTES:]

    # ---- what it came to ----

    def _last_words(self) -> str:
        lines = self.noise.decode(errors="replace").strip().splitlines() or ["it said nothing"]
        return f"the test's process ended with {self._exit_code}: {lines[-1]}"

    def _cut_short(self, running: tuple[str, str] | None) -> Check:
        """The check that runs, as failed; as stuck if it left a stream parked that nothing lets go."""
        text = f"did not end in time for the limit of {self._limit_seconds:g} s"
        queued = self._round.queued() if self._round is not None else None
        if self._round is None or queued is None:
            return interrupted(running, Outcome.FAIL, "selftest-timeout", text)
        try:
            rescuer = self._rescue(self._round, queued)
        except StreamSyncError as error:
            return interrupted(running, Outcome.FAIL, "selftest-timeout", f"{text}, and cannot be rescued: {error}")
        if rescuer is None:
            return interrupted(running, Outcome.STUCK, "device-stuck", f"{stays_parked(queued)}; the test {text}")
        return interrupted(running, Outcome.FAIL, "selftest-timeout", f"{text}; {rescuer} let the parked stream go")

    def _rescue(self, shared_round: SharedRound, queued: int) -> str | None:
        """Lets the stream go, or the test that waits for it; returns the name of what did it, None if nothing did."""
        core = HostFlagCore(self._lib_path, page=shared_round.address)
        line_count = self.journal.line_count
        for _, what, rescue in rescues(core, queued):
            rescue()
            give_up = time.monotonic() + RESCUE_NS / 1e9
            while time.monotonic() < give_up:
                if core.reply_consumed(queued) or self.journal.line_count > line_count or not self._is_running():
                    return what
                self._hear(_LOOK_SECONDS)
        return None


def _run_child(test: Test, tell_descriptor: int, noise_descriptor: int, parent_id: int) -> NoReturn:
    """The child's whole life.

    Its end is os._exit: with a stream parked, the driver's exit handlers would wait for it for ever.
    """
    exit_code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setpgid(0, 0)
        end_with_parent(parent_id)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        # A child that cannot be ended must not keep whoever reads this program's output waiting.
        os.dup2(noise_descriptor, 1)
        os.dup2(noise_descriptor, 2)
        tell = teller(tell_descriptor)
        test(tell)
        tell(ENDED, None)
        exit_code = 0
    except BaseException:  # noqa: BLE001  nothing of the supervisor's may run here
        traceback.print_exc()
    finally:
        os._exit(exit_code)


@contextlib.contextmanager
def _sigterm_raised() -> Iterator[None]:
    """SIGTERM raises SystemExit in the block: PID 1 of a container would not hear it otherwise."""
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


def _leave(signal_number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + signal_number)
