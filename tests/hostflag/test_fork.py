"""A forked child never touches its parent's rounds, and takes part fully through objects of its own."""

import pytest

from tests.hostflag.programs import run_program

INHERITED = """
core = HostFlagCore()
set_words(core, START)
core.attach(16, -7, 60_000)
core.lib.dsv41_hf_store(core.gathered_host, START + 1)
before = words(core)
child = os.fork()
if child == 0:
    {child}
_, status = os.waitpid(child, 0)
assert status == 0, status
assert words(core) == before, words(core)
assert core.watchdog_stats()["running"]
assert publish_bytes(core, START + 1, bytes(16))
core.close()
print("untouched")
"""

IN_CHILD = {
    "fails-all": "print(core.fail_all(START + 1), core.fail_ahead(), flush=True); os._exit(0)",
    "exits-normally": "sys.exit(0)",
    "closes-and-exits": "core.close(); core.close(); sys.exit(0)",
    "stops-the-watchdog": "core.stop_watchdog(); sys.exit(0)",
    "forks-again": "child = os.fork(); sys.exit(0 if child == 0 else os.waitpid(child, 0)[1])",
}


@pytest.mark.parametrize("child", list(IN_CHILD))
def test_a_child_leaves_its_parents_rounds_alone(child: str, start: int) -> None:
    said = run_program(INHERITED.format(child=IN_CHILD[child]), start)
    assert said.splitlines()[-1] == "untouched"


@pytest.mark.parametrize(
    "call",
    [
        "core.publish(START + 1, None)",
        "core.consumed(START)",
        "core.release(START + 1)",
        "core.attach(16, -7, 1000)",
        "core.reset()",
        "core.watch_proxy(1)",
    ],
)
def test_a_call_that_would_store_is_refused_in_a_child(call: str, start: int) -> None:
    child = f"""
    try:
        {call}
    except StreamSyncError as error:
        assert "inherited through fork" in str(error)
        os._exit(0)
    os._exit(1)"""
    assert run_program(INHERITED.format(child=child.strip()), start) == "untouched"


def test_a_child_reads_through_an_inherited_object_and_has_no_watchdog(start: int) -> None:
    child = """
    assert core.values() == (START + 1, START, START)
    assert core.wait_gathered(START + 1, 5)
    assert core.watchdog_stats() == {"running": False}
    assert core.watchdog_mirror(0) is False
    os._exit(0)"""
    assert run_program(INHERITED.replace("{child}", child.strip()), start) == "untouched"


def test_what_a_child_makes_itself_works_on_its_parents_page(start: int) -> None:
    assert (
        run_program(
            """
        core = HostFlagCore()
        set_words(core, START)
        child = os.fork()
        if child == 0:
            proxy = HostFlagCore(page=core.page)
            assert proxy.wait_gathered(START + 1, 10)
            assert publish_bytes(proxy, START + 1, bytes([41, 0, 0, 0, 42, 0, 0, 0]))
            mine = HostFlagCore()
            mine.attach(8, -7, 20)
            mine.lib.dsv41_hf_store(mine.gathered_host, 1)
            assert mine.lib.dsv41_hf_wait_geq(mine.released_host, 1, 10**10, 0, 0) == 0
            assert mine.watchdog_stats()["fires"] == 1
            os._exit(0)
        core.lib.dsv41_hf_store(core.gathered_host, START + 1)
        assert core.lib.dsv41_hf_wait_geq(core.released_host, START + 1, 10**10, 0, 0) == 0
        print(list((ctypes.c_int32 * 2).from_address(core.reply_host)), os.waitpid(child, 0)[1])
        """,
            start,
        )
        == "[41, 42] 0"
    )


def test_a_childs_death_watch_thread_of_the_parent_is_not_missed(start: int) -> None:
    """The parent's watch of its proxy goes on after a fork, and the child's close does not disturb it."""
    assert (
        run_program(
            """
        core = HostFlagCore()
        set_words(core, START)
        proxy = os.fork()
        if proxy == 0:
            signal.pause()
        core.watch_proxy(proxy)
        os.kill(proxy, signal.SIGKILL)
        assert core.lib.dsv41_hf_wait_geq(core.released_host, START + 1, 10**10, 0, 10**5) == 0
        os.waitpid(proxy, 0)
        core.close()
        print("noticed")
        """,
            start,
        )
        == "noticed"
    )
