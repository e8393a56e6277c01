"""GPU claims between real processes: every holder and rival here is a process of its own."""

import fcntl
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cpuplan.host import gpulock

GPU_A, GPU_B, GPU_C = "0000:1b:00.0", "0000:43:00.0", "0000:9d:00.0"
OPERATOR = Path(__file__).parents[2] / "operator"
NOBODY = 65534

# A server: becomes its user (after its imports, which another user may not be able to read), claims, says what
# it was told, and lives until its input ends.
_SERVER = """
import os, sys
from pathlib import Path
from cpuplan.host.gpulock import claim_gpus
user, folder, *addresses = sys.argv[1:]
if int(user) != os.geteuid():
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
print(claim_gpus(addresses, folder=Path(folder)), flush=True)
sys.stdin.read()
"""


class Server:
    """A process that claimed its GPUs; `answer` is what it was told (`None`: claimed)."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        assert process.stdout is not None
        self.answer = process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        self.process.communicate("", timeout=20)


Start = Callable[..., Server]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a server that claims addresses in the test's folder, as another user where asked to."""
    with ExitStack() as stack:

        def start_server(*addresses: str, user: int = os.geteuid()) -> Server:
            process = subprocess.Popen(
                [sys.executable, "-S", "-c", _SERVER, str(user), str(tmp_path), *addresses],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={"PYTHONPATH": str(OPERATOR)},
            )
            server = Server(stack.enter_context(process))
            stack.callback(process.kill)
            return server

        yield start_server


@pytest.fixture(autouse=True)
def _no_claims_stay() -> Iterator[None]:
    """Lets go of what a test claimed in this very process."""
    yield
    gpulock._release(gpulock._held)
    gpulock._held.clear()


def claim(folder: Path, *addresses: str | None) -> str | None:
    return gpulock.claim_gpus(addresses, folder=folder)


def lock_file(folder: Path, address: str) -> Path:
    return folder / f"mstar-gpu-{address}.lock"


def test_two_servers_on_different_gpus_both_claim(start: Start) -> None:
    assert [start(GPU_A).answer, start(GPU_B).answer] == ["None", "None"]


def test_a_second_server_on_a_gpu_is_refused_by_name(start: Start, tmp_path: Path) -> None:
    assert start(GPU_A).answer == "None"
    assert claim(tmp_path, GPU_A) == (
        f"GPU {GPU_A} is claimed by another server on this host ({lock_file(tmp_path, GPU_A)})"
    )


@pytest.mark.parametrize("end", [Server.end, Server.kill])
def test_a_claim_ends_with_its_process_however_it_ends(
    start: Start, tmp_path: Path, end: Callable[[Server], None]
) -> None:
    server = start(GPU_A)
    end(server)
    assert claim(tmp_path, GPU_A) is None


def test_one_gpu_that_is_held_leaves_the_others_free(start: Start, tmp_path: Path) -> None:
    assert start(GPU_B).answer == "None"
    refusal = claim(tmp_path, GPU_A, GPU_B, GPU_C)
    assert refusal is not None
    assert GPU_B in refusal
    assert start(GPU_A, GPU_C).answer == "None"


def test_a_refused_claim_keeps_what_was_claimed_before(start: Start, tmp_path: Path) -> None:
    assert claim(tmp_path, GPU_A) is None
    assert start(GPU_B).answer == "None"
    assert claim(tmp_path, GPU_A, GPU_B) is not None
    assert GPU_A in start(GPU_A).answer


def test_claiming_again_in_one_process_succeeds(tmp_path: Path) -> None:
    assert [claim(tmp_path, GPU_A), claim(tmp_path, GPU_A), claim(tmp_path, GPU_A, GPU_B)] == [None] * 3


def test_every_form_of_an_address_is_one_lock(start: Start, tmp_path: Path) -> None:
    assert start("00000000:1B:00.0").answer == "None"
    assert claim(tmp_path, GPU_A) is not None
    assert [path.name for path in tmp_path.iterdir()] == [f"mstar-gpu-{GPU_A}.lock"]


def test_absent_addresses_claim_nothing(tmp_path: Path) -> None:
    assert claim(tmp_path, None, "", None) is None
    assert list(tmp_path.iterdir()) == []


def test_a_spawned_worker_is_refused_by_its_own_parent(start: Start, tmp_path: Path) -> None:
    assert claim(tmp_path, GPU_A) is None
    assert "is claimed by another server" in start(GPU_A).answer


def in_child(work: Callable[[], int]) -> int:
    """The exit status of `work` in a forked child."""
    pid = os.fork()
    if pid == 0:
        os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_holds_the_claim_of_its_parent(tmp_path: Path) -> None:
    assert claim(tmp_path, GPU_A) is None
    assert in_child(lambda: 0 if claim(tmp_path, GPU_A) is None else 1) == 0


def test_a_child_that_outlives_its_parent_keeps_the_claim(tmp_path: Path) -> None:
    """The parent claims, forks a child that waits for its input to end, and ends."""
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from cpuplan.host.gpulock import claim_gpus\n"
        "claim_gpus([sys.argv[2]], folder=Path(sys.argv[1]))\n"
        "if os.fork(): os._exit(0)\n"
        "sys.stdin.read()\n"
    )
    reader, writer = os.pipe()
    arguments = [sys.executable, "-S", "-c", script, str(tmp_path), GPU_A]
    subprocess.run(arguments, stdin=reader, check=True, env={"PYTHONPATH": str(OPERATOR)}, timeout=60)
    os.close(reader)
    assert claim(tmp_path, GPU_A) is not None
    os.close(writer)
    descriptor = os.open(lock_file(tmp_path, GPU_A), os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)  # waits until the child has ended, at most the test's time limit
    os.close(descriptor)
    assert claim(tmp_path, GPU_A) is None


def test_a_child_forked_while_another_thread_claims_can_claim(tmp_path: Path) -> None:
    """fork waits for the claim that is under way; else the child would inherit a lock that nobody releases."""
    script = (
        "import fcntl, os, sys, threading\n"
        "from pathlib import Path\n"
        "from cpuplan.host import gpulock\n"
        "folder, real_flock = Path(sys.argv[1]), fcntl.flock\n"
        "in_claim, in_fork = threading.Event(), threading.Event()\n"
        "os.register_at_fork(before=in_fork.set)\n"
        "def flock_during_fork(*arguments):\n"
        "    in_claim.set(); in_fork.wait(); real_flock(*arguments)\n"
        "fcntl.flock = flock_during_fork\n"
        "threading.Thread(target=gpulock.claim_gpus, args=[[sys.argv[2]]], kwargs={'folder': folder}).start()\n"
        "in_claim.wait()\n"
        "child = os.fork()\n"
        "if not child: os._exit(0 if gpulock.claim_gpus([sys.argv[3]], folder=folder) is None else 1)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    arguments = [sys.executable, "-S", "-c", script, str(tmp_path), GPU_A, GPU_B]
    assert subprocess.run(arguments, check=False, env={"PYTHONPATH": str(OPERATOR)}, timeout=30).returncode == 0


def test_the_file_is_readable_for_every_user_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert claim(tmp_path, GPU_A) is None
    finally:
        os.umask(before)
    assert stat.S_IMODE(lock_file(tmp_path, GPU_A).stat().st_mode) == 0o644


def test_a_lock_file_stays_and_is_not_written(start: Start, tmp_path: Path) -> None:
    start(GPU_A).end()
    assert lock_file(tmp_path, GPU_A).read_bytes() == b""


def test_a_descriptor_does_not_reach_started_programs(tmp_path: Path) -> None:
    assert claim(tmp_path, GPU_A) is None
    assert not os.get_inheritable(gpulock._held[GPU_A])


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="starts a process of another user: run the tests as root")


@pytest.fixture
def sticky(tmp_path: Path) -> Path:
    """A folder like /tmp: everybody writes, nobody removes what is another's; its parents can be passed."""
    for parent in tmp_path.parents[:3]:
        parent.chmod(parent.stat().st_mode | 0o055)
    tmp_path.chmod(0o1777)
    return tmp_path


@needs_root
def test_another_users_server_respects_a_claim_and_takes_it_over(start: Start, sticky: Path) -> None:
    holder = start(GPU_A)
    assert holder.answer == "None"
    assert "is claimed by another server" in start(GPU_A, user=NOBODY).answer
    holder.end()
    assert start(GPU_A, user=NOBODY).answer == "None"
    assert lock_file(sticky, GPU_A).stat().st_uid == 0


@needs_root
def test_root_respects_a_claim_of_another_user_in_a_sticky_folder(start: Start, sticky: Path) -> None:
    """Where fs.protected_regular is set, even root is refused O_CREAT there, so the file is opened without."""
    holder = start(GPU_A, user=NOBODY)
    assert (holder.answer, lock_file(sticky, GPU_A).stat().st_uid) == ("None", NOBODY)
    assert "is claimed by another server" in start(GPU_A).answer
    holder.kill()
    assert start(GPU_A).answer == "None"


@needs_root
def test_a_file_that_another_user_may_not_read_is_a_reason(start: Start, sticky: Path) -> None:
    lock_file(sticky, GPU_A).touch(mode=0o600)
    assert start(GPU_A, user=NOBODY).answer == (
        f"GPU {GPU_A} cannot be claimed: {lock_file(sticky, GPU_A)}: Permission denied"
    )


def test_a_planted_symbolic_link_is_refused_and_its_target_untouched(tmp_path: Path) -> None:
    target = tmp_path / "target"
    lock_file(tmp_path, GPU_A).symlink_to(target)
    assert claim(tmp_path, GPU_A) == (
        f"GPU {GPU_A} cannot be claimed: {lock_file(tmp_path, GPU_A)}: Too many levels of symbolic links"
    )
    assert not target.exists()


def test_a_planted_fifo_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(lock_file(tmp_path, GPU_A))
    assert claim(tmp_path, GPU_A) == (
        f"GPU {GPU_A} cannot be claimed: {lock_file(tmp_path, GPU_A)}: not a regular file"
    )


def test_a_planted_folder_is_refused(tmp_path: Path) -> None:
    lock_file(tmp_path, GPU_A).mkdir()
    assert str(claim(tmp_path, GPU_A)).endswith(": not a regular file")


def test_a_missing_folder_is_a_reason(tmp_path: Path) -> None:
    assert str(claim(tmp_path / "absent", GPU_A)).endswith(": No such file or directory")


@pytest.mark.parametrize("address", ["../../etc/passwd", "a\x00b", "x" * 300, "\ud800"])
def test_text_that_is_no_address_is_a_reason_and_never_an_exception(tmp_path: Path, address: str) -> None:
    assert str(claim(tmp_path, address)).startswith("GPU ")
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_leaves_no_descriptor_open(tmp_path: Path) -> None:
    os.mkfifo(lock_file(tmp_path, GPU_B))
    before = os.listdir("/proc/self/fd")  # noqa: PTH208 - the names are the descriptors
    assert claim(tmp_path, GPU_A, GPU_B) is not None
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208


def test_a_file_that_a_cleaner_removed_while_it_was_locked_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cleaner strikes between opening and locking; a lock on an unlinked file would exclude nobody."""
    real_flock, strikes = fcntl.flock, [lock_file(tmp_path, GPU_A)]

    def flock_after_cleaner(descriptor: int, operation: int) -> None:
        real_flock(descriptor, operation)
        if strikes:
            strikes.pop().unlink()

    monkeypatch.setattr(gpulock.fcntl, "flock", flock_after_cleaner)
    assert claim(tmp_path, GPU_A) is None
    assert gpulock._is_still(lock_file(tmp_path, GPU_A), gpulock._held[GPU_A])


def test_a_file_that_is_removed_again_and_again_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpulock.fcntl, "flock", lambda *_: lock_file(tmp_path, GPU_A).unlink())
    assert str(claim(tmp_path, GPU_A)).endswith(": the file is removed again and again")


def test_a_file_that_vanishes_before_it_is_opened_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_open, refusals = os.open, [FileExistsError(), FileNotFoundError()]

    def open_with_refusals(*arguments: object) -> int:
        if refusals:
            raise refusals.pop(0)
        return real_open(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(gpulock.os, "open", open_with_refusals)
    assert claim(tmp_path, GPU_A) is None


def test_rivals_for_the_same_set_never_split_it(start: Start) -> None:
    answers = [start(*order).answer for order in ((GPU_A, GPU_B, GPU_C), (GPU_C, GPU_B, GPU_A), (GPU_B,))]
    assert [answer == "None" for answer in answers] == [True, False, False]
