"""HostFlagCore as an engine and its proxy use it."""

import ctypes
import math
import mmap
import os
import signal
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import hostflag_native
from hostflag_native import REPLY_CAPACITY, HostFlagCore, StreamSyncError, set_timer_slack
from tests.hostflag.programs import run_program
from tests.hostflag.stream import LIMIT_NS, StreamStandIn, StreamThread

PR_GET_TIMERSLACK = 30

FAILED = (-7).to_bytes(4, "little", signed=True)


def _mask(value: int) -> int:
    return value % 2**32


def test_the_module_constants_are_the_abi() -> None:
    names = ["PAGE_BYTES", "OFF_GATHERED", "OFF_RELEASED", "OFF_CLAIMED", "OFF_CONSUMED", "OFF_REPLY", "REPLY_CAPACITY"]
    assert [getattr(hostflag_native, name) for name in names] == [65536, 0, 128, 256, 384, 4096, 61440]
    assert (hostflag_native.FAR_AHEAD, hostflag_native.HOSTFLAG_VERSION) == (2**30, 2)
    assert hostflag_native.HOSTFLAG_LIB == "libdsv41_hostflag.so"
    assert hostflag_native.PR_SET_TIMERSLACK == 29
    assert hostflag_native._V is ctypes.c_void_p
    assert hostflag_native._M32 == 0xFFFFFFFF
    assert hostflag_native.CU_STREAM_WAIT_VALUE_GEQ == hostflag_native.CU_STREAM_WRITE_VALUE_DEFAULT == 0
    assert hostflag_native.CU_MEMHOSTREGISTER_PORTABLE | hostflag_native.CU_MEMHOSTREGISTER_DEVICEMAP == 3


def test_a_thousand_rounds_arrive_in_order_with_their_own_replies(core: HostFlagCore, start: int) -> None:
    core.attach(8, -7, 60_000)
    stream = StreamThread(StreamStandIn(core), start + 1, 1000, 8)
    for i in range(1, 1001):
        assert core.wait_gathered(start + i, 10)
        assert core.reply_consumed(start + i - 1)
        assert core.publish(start + i, np.array([i, -i], dtype=np.int32))
    assert stream.join() == [np.array([i, -i], dtype=np.int32).tobytes() for i in range(1, 1001)]
    assert core.values() == (_mask(start + 1000),) * 3


@pytest.mark.parametrize("timeout_s", [0, -1, -math.inf, 1e-6, 0.15])
def test_waiting_for_a_round_that_does_not_come_returns_false(core: HostFlagCore, start: int, timeout_s: float) -> None:
    assert core.wait_gathered(start + 1, timeout_s) is False


@pytest.mark.parametrize("timeout_s", [0, -1, -math.inf, 1e300, math.inf])
def test_a_round_that_is_there_is_seen_whatever_the_timeout(core: HostFlagCore, start: int, timeout_s: float) -> None:
    StreamStandIn(core).gather(start + 1)
    assert core.wait_gathered(start + 1, timeout_s) is True


@pytest.mark.parametrize("timeout_s", [math.inf, 1e300, 2**63])
def test_an_endless_wait_ends_when_the_round_comes(core: HostFlagCore, start: int, timeout_s: float) -> None:
    timer = threading.Timer(0.25, StreamStandIn(core).gather, (start + 1,))
    timer.start()
    assert core.wait_gathered(start + 1, timeout_s) is True
    timer.join()


@pytest.mark.parametrize(
    ("nap_us", "longest_us", "deadline_ms", "expected_us"),
    [
        (50, 1000, 0, 1000),
        (50, 1000, 500, 1000),
        (50, 1000, 40, 400),
        (50, 1000, 2, 50),
        (50, 0, 0, 50),
        (5000, 1000, 0, 5000),
        (0, 1000, 0, 0),
    ],
    ids=["idle", "long-deadline", "short-deadline", "tiny-deadline", "switched-off", "long-naps", "yielding"],
)
def test_naps_get_longer_once_no_round_came_for_100_ms_and_short_again_with_the_next(
    monkeypatch: pytest.MonkeyPatch, nap_us: float, longest_us: float, deadline_ms: float, expected_us: int
) -> None:
    core = HostFlagCore(nap_us=nap_us, spin_us=0)
    monkeypatch.setattr(HostFlagCore, "longest_idle_nap_us", longest_us)
    core.deadline_ms = deadline_ms
    naps_us: list[float] = []
    is_gathered = False

    def note_nap(_word: int, _value: int, _timeout_ns: int, _spin_ns: int, nap_ns: int) -> int:
        naps_us.append(nap_ns / 1000)
        return 0 if is_gathered else 1

    monkeypatch.setattr(core, "lib", SimpleNamespace(dsv41_hf_wait_geq=note_nap))
    assert not core.wait_gathered(1, 0.25)
    assert not core.wait_gathered(1, 0.01)
    is_gathered = True
    assert core.wait_gathered(1, 0.01)
    assert core.wait_gathered(2, 0.01)
    assert naps_us == [nap_us, *[expected_us] * 4, nap_us]
    monkeypatch.undo()
    core.close()


def test_waits_that_together_are_shorter_than_100_ms_are_not_idle(
    monkeypatch: pytest.MonkeyPatch, core: HostFlagCore, start: int
) -> None:
    naps_ns: list[int] = []
    monkeypatch.setattr(core, "nap_ns", 50_000)
    wait = core.lib.dsv41_hf_wait_geq

    def note_nap(*args: int) -> int:
        naps_ns.append(args[-1])
        return int(wait(*args))

    monkeypatch.setattr(core, "lib", SimpleNamespace(dsv41_hf_wait_geq=note_nap))
    for _ in range(9):
        assert not core.wait_gathered(start + 1, 0.01)
    assert not core.wait_gathered(start + 1, 0)
    assert naps_ns == [50_000] * 10
    monkeypatch.undo()


def test_a_timeout_that_is_not_a_number_is_refused(core: HostFlagCore) -> None:
    with pytest.raises(ValueError, match="a duration is NaN"):
        core.wait_gathered(1, math.nan)


def test_an_endless_wait_can_be_interrupted_by_a_signal(core: HostFlagCore, start: int) -> None:
    def interrupt(*_: object) -> None:
        raise InterruptedError("handled")

    previous = signal.signal(signal.SIGUSR1, interrupt)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    with pytest.raises(InterruptedError, match="handled"):
        core.wait_gathered(start + 1, math.inf)
    timer.join()
    signal.signal(signal.SIGUSR1, previous)


@pytest.mark.parametrize(
    "reply",
    [
        np.zeros((4, 4), dtype=np.int32)[:, :2],
        np.zeros((4, 4), order="F"),
        np.zeros(REPLY_CAPACITY + 1, dtype=np.uint8),
        np.array([object()]),
        b"bytes",
        [1, 2, 3],
        None,
    ],
    ids=["strided", "fortran", "too-large", "objects", "bytes", "list", "none"],
)
def test_publish_refuses_what_is_no_contiguous_array_that_fits(core: HostFlagCore, start: int, reply: object) -> None:
    with pytest.raises(ValueError, match="the reply"):
        core.publish(start + 1, reply)  # type: ignore[arg-type]
    assert not core.taken(start + 1)


def test_a_reply_of_the_whole_capacity_and_one_of_nothing_are_published(core: HostFlagCore, start: int) -> None:
    whole = np.random.default_rng(1).integers(0, 256, REPLY_CAPACITY, dtype=np.uint8)
    assert core.publish(start + 1, whole)
    assert StreamStandIn(core).reply(REPLY_CAPACITY) == whole.tobytes()
    assert core.publish(start + 2, np.zeros(0))


def test_a_reply_that_cannot_be_written_to_or_has_no_buffer_is_published_too(core: HostFlagCore, start: int) -> None:
    frozen = np.array([5, 6], dtype=np.int32)
    frozen.flags.writeable = False
    dates = np.array(["2024-02-29", "1999-12-31"], dtype="datetime64[ns]")
    for number, reply in enumerate((frozen, dates, np.array(7.5)), start=1):
        assert core.publish(start + number, reply)
        assert StreamStandIn(core).reply(reply.nbytes) == reply.tobytes()


def test_values_are_masked_to_32_bits(core: HostFlagCore, start: int) -> None:
    assert core.publish(start + 1 + 2**32, np.zeros(1))
    assert core.taken(start + 1 - 2**40)
    core.consumed(start + 1 + 2**33)
    assert core.reply_consumed(start + 1)


def test_taken_and_consumed_tell_of_the_round_and_all_before(core: HostFlagCore, start: int) -> None:
    core.publish(start + 2, np.zeros(1))
    core.consumed(start + 2)
    assert [core.taken(start + i) for i in (1, 2, 3)] == [True, True, False]
    assert [core.reply_consumed(start + i) for i in (1, 2, 3)] == [True, True, False]


def test_release_alone_lets_the_stream_go_without_a_claim(core: HostFlagCore, start: int) -> None:
    core.release(start + 1)
    assert StreamStandIn(core).is_released(start + 1)
    assert not core.taken(start + 1)


def test_a_cpu_stand_in_has_nothing_pending(core: HostFlagCore) -> None:
    assert core.drain_marker() is None
    assert core.drained(None) is True
    assert HostFlagCore.cuda_free_proxy is True


# ---- failing ----


def test_fail_all_before_any_attach_fails_the_whole_capacity(core: HostFlagCore, start: int) -> None:
    ctypes.memset(core.reply_host, 0xAA, REPLY_CAPACITY)
    assert core.fail_all(start + 1) is True
    assert StreamStandIn(core).reply(REPLY_CAPACITY)[4:] == bytes(REPLY_CAPACITY - 4)
    assert core.fail_all(start + 1) is False


def test_fail_all_does_not_touch_a_reply_that_is_being_consumed(core: HostFlagCore, start: int) -> None:
    core.configure_reply(8, -7)
    core.publish(start + 1, np.array([11, 22], dtype=np.int32))
    stream = StreamStandIn(core)
    seen = []

    def consume_late() -> None:
        seen.append(stream.reply(8))
        stream.consume(start + 1)

    timer = threading.Timer(0.003, consume_late)
    timer.start()
    core.fail_all(start + 2)
    timer.join()
    assert seen == [np.array([11, 22], dtype=np.int32).tobytes()]
    assert stream.reply(8) == FAILED + bytes(4)


def test_fail_all_waits_for_a_claimant_and_then_for_the_reply_to_be_consumed(
    core: HostFlagCore, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that is writing a reply finishes it, and the stream copies it, before the failed one is written."""
    reply, waits, stream = bytes(range(8)), [], StreamStandIn(core)
    core.configure_reply(8, -7)
    core.lib.dsv41_hf_claim(core.claimed_host, start + 1)

    def play_the_others(word: int, value: int) -> bool:
        waits.append((word, value))
        if word == core.released_host:
            ctypes.memmove(core.reply_host, reply, 8)
            core.release(start + 1)
        else:
            assert stream.reply(8) == reply
            stream.consume(start + 1)
        return True

    monkeypatch.setattr(core, "_ends_within_grace", play_the_others)
    assert core.fail_all(start + 2)
    assert waits == [(core.released_host, _mask(start + 1)), (core.consumed_host, _mask(start + 1))]
    assert stream.reply(8) == FAILED + bytes(4)


def test_fail_all_looks_again_when_a_proxy_claims_while_it_waits(
    core: HostFlagCore, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would write over a reply that was published between its wait and its claim, and that nobody has read."""
    stream, waits = StreamStandIn(core), []
    core.configure_reply(8, -7)

    def publish_meanwhile(word: int, value: int) -> bool:
        waits.append((word, value))
        if len(waits) == 2:
            core.publish(start + 1, np.arange(2, dtype=np.int32))
        return True

    monkeypatch.setattr(core, "_ends_within_grace", publish_meanwhile)
    assert core.fail_all(start + 2)
    assert waits[2:] == [(core.released_host, _mask(start + 1)), (core.consumed_host, _mask(start + 1))]
    assert stream.reply(8) == FAILED + bytes(4)


def test_fail_ahead_releases_every_pending_and_later_round_at_once(core: HostFlagCore, start: int) -> None:
    core.configure_reply(8, -7)
    stream = StreamStandIn(core)
    stream.gather(start + 1)
    assert core.fail_ahead() is True
    assert [stream.run_round(start + i, 8) for i in range(1, 100)] == [FAILED + bytes(4)] * 99
    assert core.publish(start + 100, np.zeros(1)) is False


def test_a_second_fail_ahead_does_not_move_claimed_again(core: HostFlagCore, start: int) -> None:
    core.fail_ahead()
    values = core.values()
    assert core.fail_ahead() is False
    assert core.values() == values
    assert StreamStandIn(core).is_released(start + 1)


def test_fail_ahead_moves_again_once_gathered_has_come_near(core: HostFlagCore, start: int) -> None:
    core.fail_ahead()
    StreamStandIn(core).gather(start + 2**29 + 1)
    assert core.fail_ahead() is True
    assert core.values()[1:] == (_mask(start + 2**31),) * 2


@pytest.mark.parametrize("ahead", [2**29, 2**30, 2**31 - 1])
def test_fail_ahead_finishes_what_a_dead_claimant_left(core: HostFlagCore, start: int, ahead: int) -> None:
    core.configure_reply(8, -7)
    StreamStandIn(core).gather(start + 1)
    ctypes.memset(core.reply_host, 0xAA, 8)
    core.lib.dsv41_hf_claim(core.claimed_host, start + 1)
    core.lib.dsv41_hf_set(core.claimed_host, start + 1 + ahead)
    core.lib.dsv41_hf_set(core.released_host, start + 1 + ahead - 5)
    assert core.fail_ahead() is False
    assert core.values()[1:] == (_mask(start + 1 + ahead),) * 2
    assert StreamStandIn(core).reply(8) == FAILED + bytes(4)


def test_fail_ahead_leaves_the_reply_alone_when_nothing_lags(core: HostFlagCore) -> None:
    core.fail_ahead()
    ctypes.memset(core.reply_host, 0xAA, 8)
    assert core.fail_ahead() is False
    assert StreamStandIn(core).reply(8) == b"\xaa" * 8


# ---- attach, watchdog, close ----


def test_attach_puts_a_failed_reply_in_place(core: HostFlagCore) -> None:
    ctypes.memset(core.reply_host, 0xAA, 16)
    core.attach(10, -7, 1000)
    assert StreamStandIn(core).reply(16) == FAILED + bytes(6) + b"\xaa" * 6
    assert (core.reply_bytes, core.fail_status, core.deadline_ms) == (10, -7, 1000)


@pytest.mark.parametrize("reply_bytes", [-1, 0, 3, REPLY_CAPACITY + 1])
def test_attach_with_a_bad_size_changes_nothing(core: HostFlagCore, reply_bytes: int) -> None:
    ctypes.memset(core.reply_host, 0xAA, 16)
    with pytest.raises(StreamSyncError, match=f"the reply size is {reply_bytes} bytes, expected 4 to 61440"):
        core.attach(reply_bytes, -7, 1000)
    assert StreamStandIn(core).reply(16) == b"\xaa" * 16
    assert (core.reply_bytes, core.deadline_ms, core.watchdog_stats()) == (REPLY_CAPACITY, 0, {"running": False})


@pytest.mark.parametrize("deadline_ms", [0, -1, -math.inf, math.nan])
def test_attach_with_a_bad_deadline_changes_nothing(core: HostFlagCore, deadline_ms: float) -> None:
    with pytest.raises(StreamSyncError, match="the deadline is"):
        core.attach(16, -7, deadline_ms)
    assert (core.reply_bytes, core.watchdog_stats()) == (REPLY_CAPACITY, {"running": False})


def test_attach_while_a_watchdog_runs_changes_nothing(core: HostFlagCore) -> None:
    core.attach(16, -7, 1000)
    with pytest.raises(StreamSyncError, match="a watchdog is running"):
        core.attach(32, -8, 2000)
    assert (core.reply_bytes, core.fail_status, core.deadline_ms) == (16, -7, 1000)


def test_after_stop_watchdog_attach_works_again(core: HostFlagCore) -> None:
    core.attach(16, -7, 1000)
    core.stop_watchdog()
    core.stop_watchdog()
    core.attach(32, -8, math.inf)
    assert (core.reply_bytes, core.watchdog_stats()["running"]) == (32, True)


@pytest.mark.parametrize(
    ("deadline_ms", "poll_us", "expected_poll_ns"),
    [(1000, 1000, 10**6), (1, 1000, 100_000), (0.1, 1000, 50_000), (1000, 1, 50_000), (1000, 1e9, 10**8)],
)
def test_the_poll_is_between_50_us_and_a_tenth_of_the_deadline(
    core: HostFlagCore, monkeypatch: pytest.MonkeyPatch, deadline_ms: float, poll_us: float, expected_poll_ns: int
) -> None:
    asked = []
    real = core.lib.dsv41_hf_watchdog_start
    monkeypatch.setattr(core.lib, "dsv41_hf_watchdog_start", lambda *a: asked.append(a) or real(*a))
    core.attach(16, -7, deadline_ms, poll_us)
    assert [(arguments[-2], arguments[-1]) for arguments in asked] == [(int(deadline_ms * 1e6), expected_poll_ns)]


def test_reset_is_refused_while_the_watchdog_runs(core: HostFlagCore, start: int) -> None:
    core.publish(start + 1, np.zeros(1))
    core.attach(16, -7, 1000)
    with pytest.raises(StreamSyncError, match="reset while the watchdog runs"):
        core.reset()
    core.stop_watchdog()
    core.reset()
    assert core.values() == (0, 0, 0)
    assert not core.reply_consumed(1)


def test_close_may_be_called_twice_and_fails_no_round(core: HostFlagCore, start: int) -> None:
    file = os.memfd_create("page")
    os.truncate(file, 65536)
    page = mmap.mmap(file, 65536)
    engine = ctypes.c_char.from_buffer(page)
    proxy = HostFlagCore(page=ctypes.addressof(engine))
    proxy.attach(16, -7, 10_000)
    StreamStandIn(proxy).gather(1)
    proxy.close()
    proxy.close()
    assert proxy.page == 0
    assert page[:4] == (1).to_bytes(4, "little")
    assert page[128:132] == bytes(4)
    assert page[256:260] == bytes(4)
    os.close(file)


@pytest.mark.parametrize(
    "call",
    [
        lambda core: core.values(),
        lambda core: core.wait_gathered(1, 0),
        lambda core: core.publish(1, np.zeros(1)),
        lambda core: core.taken(1),
        lambda core: core.release(1),
        lambda core: core.consumed(1),
        lambda core: core.attach(16, -7, 1000),
        lambda core: core.watch_proxy(1),
        lambda core: core.reset(),
    ],
)
def test_a_closed_object_says_that_it_is_closed(core: HostFlagCore, call: object) -> None:
    core.close()
    with pytest.raises(StreamSyncError, match="closed"):
        call(core)  # type: ignore[operator]
    assert (core.fail_all(1), core.fail_ahead(), core.watchdog_stats()) == (False, False, {"running": False})


def test_a_callers_page_keeps_its_words_and_is_not_freed(core: HostFlagCore, start: int) -> None:
    view = HostFlagCore(page=core.page)
    assert view.owns_page is False
    assert view.values() == (start, start, start)
    view.close()
    assert core.values() == (start, start, start)


@pytest.mark.parametrize("offset", [1, 128, 4095])
def test_an_unaligned_page_is_refused(core: HostFlagCore, offset: int) -> None:
    with pytest.raises(StreamSyncError, match="not aligned to 4096 bytes"):
        HostFlagCore(page=core.page + offset)


def test_describe_names_mechanism_library_and_settings(core: HostFlagCore) -> None:
    core.attach(16, -7, 250)
    described = core.describe()
    assert described.pop("lib") == core.lib_origin
    assert described == {
        "mechanism": "host_flags",
        "spin_us": 50,
        "nap_us": 50,
        "mlock": "ok",
        "watchdog_deadline_ms": 250,
    }


def test_a_failed_mlock_is_only_recorded() -> None:
    said = run_program(
        """
        import resource
        import hostflag_native.page
        loaded = hostflag_native.load_hostflag()
        hostflag_native.page.load_hostflag = lambda _: loaded
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
        os.geteuid() == 0 and os.setuid(65534)
        print(HostFlagCore().describe()["mlock"])
        """
    )
    assert said in {"errno 1", "errno 11", "errno 12"}


def test_timer_slack_is_set_for_the_calling_thread() -> None:
    prctl = ctypes.CDLL(None).prctl
    result = []

    def on_a_thread() -> None:
        result.append(set_timer_slack(4321))
        result.append(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0))

    thread = threading.Thread(target=on_a_thread)
    thread.start()
    thread.join()
    assert result == [True, 4321]


def test_the_wait_leaves_the_gil_free(core: HostFlagCore, start: int) -> None:
    waiting = threading.Thread(target=core.wait_gathered, args=(start + 1, LIMIT_NS / 1e9))
    waiting.start()
    StreamStandIn(core).gather(start + 1)
    waiting.join(10)
    assert not waiting.is_alive()
