"""The C functions on single words and whole rounds, from 0 and across the wrap."""

import ctypes
import errno
import time
from pathlib import Path

import pytest

from hostflag_native import PAGE_BYTES, REPLY_CAPACITY, HostFlagCore
from hostflag_native.layout import is_ahead, is_geq
from tests.hostflag.stream import LIMIT_NS

HALF = 2**31


def _word(core: HostFlagCore, address: int) -> int:
    return int(core.lib.dsv41_hf_load(address))


def test_an_allocation_is_zeroed_aligned_and_shared(core: HostFlagCore) -> None:
    page = core.lib.dsv41_hf_alloc(PAGE_BYTES)
    mapping = [line for line in Path("/proc/self/maps").read_text().splitlines() if line.startswith(f"{page:08x}-")]
    assert page % 4096 == 0
    assert ctypes.string_at(page, PAGE_BYTES) == bytes(PAGE_BYTES)
    assert [line.split()[1] for line in mapping] == ["rw-s"]
    core.lib.dsv41_hf_free(page)


@pytest.mark.parametrize("size", [0, 2**64 - 1, 2**62])
def test_an_impossible_allocation_gives_null(core: HostFlagCore, size: int) -> None:
    assert core.lib.dsv41_hf_alloc(size) is None


def test_freeing_null_is_fine(core: HostFlagCore) -> None:
    core.lib.dsv41_hf_free(None)


def test_locking_unmapped_memory_returns_its_errno(core: HostFlagCore) -> None:
    assert core.lib.dsv41_hf_lock(4096, 4096) == errno.ENOMEM


@pytest.mark.parametrize(
    ("step", "moves"),
    [(0, False), (1, True), (HALF - 1, True), (HALF, False), (HALF + 1, False), (2**32 - 1, False)],
)
def test_claim_and_release_move_only_ahead(core: HostFlagCore, start: int, step: int, moves: bool) -> None:
    value = (start + step) % 2**32
    after = value if moves else start
    assert core.lib.dsv41_hf_claim(core.claimed_host, value) == moves
    core.lib.dsv41_hf_release_max(core.released_host, value)
    assert (_word(core, core.claimed_host), _word(core, core.released_host)) == (after, after)
    assert is_ahead(value, start) == moves


@pytest.mark.parametrize(
    ("step", "reached"), [(0, True), (HALF - 1, False), (HALF, False), (HALF + 1, True), (2**32 - 1, True)]
)
def test_waiting_compares_cyclically(core: HostFlagCore, start: int, step: int, reached: bool) -> None:
    value = (start + step) % 2**32
    assert core.lib.dsv41_hf_wait_geq(core.released_host, value, 0, 0, 0) == (0 if reached else errno.ETIMEDOUT)
    assert is_geq(start, value) == reached


@pytest.mark.parametrize(("spin_ns", "nap_ns"), [(0, 0), (0, 50_000), (10**6, 0), (2**63 - 1, 50_000)])
def test_a_wait_ends_after_its_timeout_and_not_before(
    core: HostFlagCore, start: int, spin_ns: int, nap_ns: int
) -> None:
    before = time.monotonic_ns()
    result = core.lib.dsv41_hf_wait_geq(core.gathered_host, start + 1, 2_000_000, spin_ns, nap_ns)
    assert result == errno.ETIMEDOUT
    assert time.monotonic_ns() - before >= 2_000_000


def test_publish_writes_the_reply_once_and_releases_it(core: HostFlagCore, start: int) -> None:
    first, second = b"first reply, 20 bytes", b"second one, too late."
    arguments = (core.claimed_host, core.released_host, start + 1, core.reply_host)
    assert core.lib.dsv41_hf_publish(*arguments, first, len(first)) == 1
    assert core.lib.dsv41_hf_publish(*arguments, second, len(second)) == 0
    assert ctypes.string_at(core.reply_host, len(first)) == first
    assert _word(core, core.released_host) == (start + 1) % 2**32


def test_publish_without_bytes_reads_no_source(core: HostFlagCore, start: int) -> None:
    assert core.lib.dsv41_hf_publish(core.claimed_host, core.released_host, start + 1, core.reply_host, None, 0) == 1


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 10, REPLY_CAPACITY])
def test_a_failed_reply_is_the_status_then_zero_and_nothing_past_its_size(
    core: HostFlagCore, start: int, size: int
) -> None:
    ctypes.memset(core.reply_host, 0xAA, REPLY_CAPACITY)
    arguments = (core.claimed_host, core.released_host, start + 1, core.reply_host, size, -7)
    assert core.lib.dsv41_hf_fail_release(*arguments) == 1
    whole = ((-7).to_bytes(4, "little", signed=True) + bytes(size))[:size] + b"\xaa" * (REPLY_CAPACITY - size)
    assert ctypes.string_at(core.reply_host, REPLY_CAPACITY) == whole
    assert core.lib.dsv41_hf_fail_release(*arguments) == 0


def test_failing_waits_for_the_earlier_claimant_10_ms_and_no_longer(core: HostFlagCore, start: int) -> None:
    core.lib.dsv41_hf_claim(core.claimed_host, start + 1)
    before = time.monotonic_ns()
    arguments = (core.claimed_host, core.released_host, start + 2, core.reply_host, 4, -1)
    assert core.lib.dsv41_hf_fail_release(*arguments) == 1
    assert time.monotonic_ns() - before >= 10_000_000
    assert core.lib.dsv41_hf_wait_geq(core.released_host, start + 2, LIMIT_NS, 0, 0) == 0
