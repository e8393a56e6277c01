"""No stream stays parked when a process ends: an exit, an exception, a signal, a kill at any point."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostflag_native import HostFlagCore, StreamSyncError
from hostflag_native import process_watch as process_watch_module
from hostflag_native.selftest.peer import PeerRole, PeerTask, peer_process
from hostflag_native.selftest.rounds import reply_of
from hostflag_native.shared_page import SharedPage
from tests.hostflag.programs import run_program
from tests.hostflag.stream import LIMIT_NS, StreamStandIn

FAILED = (-7).to_bytes(4, "little", signed=True) + bytes(12)

ENGINE = """
page = SharedPage()
child = os.fork()
if child == 0:
    core = HostFlagCore(page=page.address)
    set_words(core, START)
    core.attach(16, -7, 60_000)
    core.lib.dsv41_hf_store(core.gathered_host, START + 1)
    {end}
os.waitpid(child, 0)
core = HostFlagCore(page=page.address)
print(words(core)[1] == (START + 1 + 2**30) % 2**32, publish_bytes(core, START + 1, bytes(8)))
"""


RAISE = "sys.excepthook = lambda *_: None; raise RuntimeError('engine')"


@pytest.mark.parametrize("end", ["sys.exit(0)", "sys.exit(3)", "exit()", RAISE])
def test_an_engine_that_exits_fails_ahead(end: str, start: int) -> None:
    assert run_program(ENGINE.format(end=end), start) == "True False"


def test_an_engine_that_closed_before_it_exits_fails_nothing(start: int) -> None:
    assert run_program(ENGINE.format(end="core.close(); sys.exit(0)"), start) == "False True"


def test_an_object_that_was_never_attached_fails_nothing_at_exit(start: int) -> None:
    program = ENGINE.replace("core.attach(16, -7, 60_000)", "pass")
    assert run_program(program.format(end="sys.exit(0)"), start) == "False True"


def test_an_attached_object_that_nobody_holds_any_more_still_fails_ahead_at_exit(start: int) -> None:
    assert run_program(ENGINE.format(end="del core; sys.exit(0)"), start) == "True False"


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_an_engine_in_a_child_of_multiprocessing_fails_ahead_when_it_ends(
    method: str, start: int, tmp_path: Path
) -> None:
    """Such a child, when forked, leaves without running what is registered with atexit."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(f"""
        import multiprocessing, os
        from hostflag_native import HostFlagCore
        from hostflag_native.shared_page import SharedPage

        def engine(path):
            global page
            page = SharedPage(os.open(path, os.O_RDWR))
            core = HostFlagCore(page=page.address)
            for offset in (0, 128, 256, 384):
                core.lib.dsv41_hf_set(core.page + offset, {start})
            core.attach(16, -7, 60_000)
            core.lib.dsv41_hf_store(core.gathered_host, {(start + 1) % 2**32})

        if __name__ == "__main__":
            path = {str(tmp_path / "page")!r}
            with open(path, "wb") as file:
                file.truncate(65536)
            child = multiprocessing.get_context({method!r}).Process(target=engine, args=(path,))
            child.start()
            child.join()
            page = SharedPage(os.open(path, os.O_RDWR))
            core = HostFlagCore(page=page.address)
            print(child.exitcode, core.values()[1] == {(start + 1 + 2**30) % 2**32})
        """)
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "0 True\n"


@pytest.fixture
def page() -> Iterator[SharedPage]:
    page = SharedPage()
    yield page
    page.close()


@pytest.fixture
def engine(page: SharedPage, start: int) -> Iterator[HostFlagCore]:
    engine = HostFlagCore(page=page.address)
    for word in (engine.gathered_host, engine.released_host, engine.claimed_host, engine.consumed_host):
        engine.lib.dsv41_hf_set(word, start)
    yield engine
    engine.close()


@contextlib.contextmanager
def _running(*command: str, pass_fds: tuple[int, ...] = ()) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(command, pass_fds=pass_fds) as process:
        try:
            yield process
        finally:
            process.kill()


def _open_descriptors() -> set[str]:
    return {link.name for link in Path("/proc/self/fd").iterdir()}


def _end_of(peer: "subprocess.Popen[bytes]") -> int:
    return peer.wait(20)


def test_a_proxy_in_another_process_serves_rounds(engine: HostFlagCore, page: SharedPage, start: int) -> None:
    engine.attach(16, -7, 60_000)
    stream = StreamStandIn(engine)
    with peer_process(page, PeerTask(PeerRole.SERVE, start + 1, 200, 16, "")) as peer:
        replies = [stream.run_round((start + i) % 2**32, 16) for i in range(1, 201)]
        assert _end_of(peer) == 0
    assert replies == [reply_of(start + i, 16) for i in range(1, 201)]


@pytest.mark.parametrize("role", [PeerRole.DIE_BEFORE_CLAIM, PeerRole.DIE_AFTER_CLAIM])
def test_a_watched_proxy_killed_before_its_release_fails_that_and_every_later_round(
    engine: HostFlagCore, page: SharedPage, start: int, role: PeerRole
) -> None:
    engine.attach(16, -7, 60_000)
    stream = StreamStandIn(engine)
    with peer_process(page, PeerTask(role, start + 1, 1, 16, "")) as peer:
        engine.watch_proxy(peer.pid)
        replies = [stream.run_round((start + i) % 2**32, 16) for i in range(1, 20)]
        assert _end_of(peer) == -signal.SIGKILL
    assert replies == [FAILED] * 19


def test_a_watched_proxy_killed_after_its_release_fails_every_later_round(
    engine: HostFlagCore, page: SharedPage, start: int
) -> None:
    """It is watched once its reply has been copied: a failing watch waits only 10 ms for a busy machine's stream."""
    engine.attach(16, -7, 60_000)
    stream = StreamStandIn(engine)
    with peer_process(page, PeerTask(PeerRole.DIE_AFTER_RELEASE, start + 1, 1, 16, "")) as peer:
        assert stream.run_round((start + 1) % 2**32, 16) == reply_of(start + 1, 16)
        engine.watch_proxy(peer.pid)
        replies = [stream.run_round((start + i) % 2**32, 16) for i in range(2, 20)]
        assert _end_of(peer) == -signal.SIGKILL
    assert replies == [FAILED] * 18


def test_the_watchdog_alone_fails_a_round_that_a_dead_proxy_had_not_claimed(
    engine: HostFlagCore, page: SharedPage, start: int
) -> None:
    stream = StreamStandIn(engine)
    unserved = (start + 1) % 2**32
    with peer_process(page, PeerTask(PeerRole.DIE_BEFORE_CLAIM, start + 1, 1, 16, "")) as peer:
        stream.gather(unserved)
        assert _end_of(peer) == -signal.SIGKILL
    engine.attach(16, -7, 30)
    assert stream.is_released(unserved, LIMIT_NS)
    assert stream.reply(16) == FAILED
    assert engine.watchdog_stats()["last_failed_round"] == unserved


def test_a_stopped_proxy_that_has_claimed_keeps_its_round_until_it_goes_on(
    engine: HostFlagCore, page: SharedPage, start: int
) -> None:
    """Taking it over would let two write: the late bytes of the first would come after the failed reply."""
    program = (
        "import ctypes, os, signal, sys\n"
        "from hostflag_native import HostFlagCore\n"
        "from hostflag_native.shared_page import SharedPage\n"
        "page = SharedPage(int(sys.argv[1])); value = int(sys.argv[2])\n"
        "core = HostFlagCore(page=page.address)\n"
        "core.lib.dsv41_hf_claim(core.claimed_host, value)\n"
        "os.kill(os.getpid(), signal.SIGSTOP)\n"
        "ctypes.memset(core.reply_host, 0x42, 16)\n"
        "core.release(value)\n"
    )
    engine.attach(16, -7, 10)
    stream = StreamStandIn(engine)
    value = (start + 1) % 2**32
    with _running(
        sys.executable, "-c", program, str(page.descriptor), str(value), pass_fds=(page.descriptor,)
    ) as proxy:
        os.waitpid(proxy.pid, os.WUNTRACED)
        stream.gather(value)
        assert not stream.is_released(value, 100_000_000)
        assert engine.watchdog_stats()["fires"] == 0
        os.kill(proxy.pid, signal.SIGCONT)
        assert stream.is_released(value, LIMIT_NS)
        assert stream.reply(16) == b"\x42" * 16


def test_watching_a_process_that_is_gone_fails_ahead_at_once(engine: HostFlagCore, start: int) -> None:
    with _running("true") as gone:
        gone.wait()
    undo = engine.watch_proxy(gone.pid)
    assert StreamStandIn(engine).is_released((start + 1) % 2**32)
    undo()


def test_after_the_undo_a_proxy_may_end(engine: HostFlagCore, start: int) -> None:
    with _running("sleep", "600") as proxy:
        undo = engine.watch_proxy(proxy.pid)
        undo()
        undo()
        proxy.kill()
    assert engine.values()[2] == start


def test_close_ends_the_watch(engine: HostFlagCore, page: SharedPage, start: int) -> None:
    with _running("sleep", "600") as proxy:
        engine.watch_proxy(proxy.pid)
        engine.close()
        assert [thread.name for thread in threading.enumerate() if thread.name == f"hostflag-watch-{proxy.pid}"] == []
        proxy.kill()
    assert HostFlagCore(page=page.address).values()[2] == start


def test_a_kernel_without_pidfd_is_said(engine: HostFlagCore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(process_watch_module.os, "pidfd_open", refuse)
    with pytest.raises(StreamSyncError, match=r"watch process 1: pidfd_open failed \(Function not implemented\)"):
        engine.watch_proxy(1)


def test_a_thread_is_no_process_to_watch(engine: HostFlagCore) -> None:
    may_end = threading.Event()
    thread = threading.Thread(target=may_end.wait, args=(60,))
    thread.start()
    assert thread.native_id is not None
    with pytest.raises(StreamSyncError, match="expected the id of a process, not of one of its threads"):
        engine.watch_proxy(thread.native_id)
    may_end.set()
    thread.join()


@pytest.mark.parametrize("scarce", ["descriptors", "threads"])
def test_a_watch_that_cannot_start_says_so_and_leaves_nothing_open(
    engine: HostFlagCore, monkeypatch: pytest.MonkeyPatch, scarce: str
) -> None:
    def no_descriptor(*_: int) -> int:
        raise OSError(24, "Too many open files")

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with _running("sleep", "600") as proxy:
        before = _open_descriptors()
        if scarce == "descriptors":
            monkeypatch.setattr(process_watch_module.os, "eventfd", no_descriptor)
        else:
            monkeypatch.setattr(process_watch_module.threading.Thread, "start", no_thread)
        with pytest.raises(StreamSyncError, match=f"cannot watch process {proxy.pid}: .*raise the limit"):
            engine.watch_proxy(proxy.pid)
        monkeypatch.undo()
        assert _open_descriptors() == before
        proxy.kill()


def test_watches_that_are_over_are_forgotten(engine: HostFlagCore) -> None:
    with _running("sleep", "600") as proxy:
        for _ in range(5):
            engine.watch_proxy(proxy.pid)()
        engine.watch_proxy(proxy.pid)
        assert len(engine._watches) == 1
        engine.close()
        proxy.kill()
