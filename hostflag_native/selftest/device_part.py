"""The device part: each visible CUDA device parks a stream and is let go."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hostflag_native.core import HostFlagCore
from hostflag_native.layout import REPLY_CAPACITY
from hostflag_native.selftest.cuda_driver import CudaDriver, is_launch_blocking
from hostflag_native.selftest.device_latency import measure_latency
from hostflag_native.selftest.device_stream import DeviceStream
from hostflag_native.selftest.rounds import (
    JUST_BELOW_WRAP,
    FaultyProxy,
    Injection,
    reply_of,
    set_words,
)
from hostflag_native.selftest.shared_round import SharedRound
from hostflag_native.selftest.told import DEVICE, Tell
from hostflag_native.selftest.verdict import CheckFailedError, Checklist, Figures, Outcome, UntestedError

PART: Final = "device"

FAIL_STATUS: Final = -78

PARKED_NS: Final = 20_000_000
"""How long a stream is watched to stay parked, in ns: a wait without effect ends within some us."""

WRAP_ROUNDS: Final = 100


def run_device_part(
    checklist: Checklist,
    tell: Tell,
    shared_round: SharedRound,
    *,
    lib_path: str,
    injection: Injection,
    require_gpu: bool,
) -> None:
    """Tests each visible device, all on the one shared page; after a stuck one no other is touched.

    Args:
        tell: hears what was found about each device.
    """
    drivers: list[tuple[CudaDriver, int]] = []
    if not checklist.run(PART, "driver", "device-init", lambda: _open_driver(drivers, require_gpu)):
        return
    cores: list[HostFlagCore] = []
    if not checklist.run(PART, "library", "host-library", lambda: _open_library(cores, lib_path, shared_round)):
        return
    (driver, count), core = drivers[0], cores[0]
    for ordinal in range(count):
        DeviceChecks(driver, core, shared_round, ordinal, injection).run(checklist, tell)
        if any(check.outcome is Outcome.STUCK for check in checklist.checks()):
            return
    core.close()


def _open_driver(opened: list[tuple[CudaDriver, int]], require_gpu: bool) -> Figures:
    try:
        driver = CudaDriver()
        count = driver.initialise()
    except UntestedError as error:
        if require_gpu:
            raise CheckFailedError(error.fault, f"{error}, and a GPU is required") from error
        raise
    if is_launch_blocking():
        raise CheckFailedError(
            "launch-blocking",
            "CUDA_LAUNCH_BLOCKING is set: every launch waits for the stream, so a parked one hangs its host; unset it",
        )
    opened.append((driver, count))
    return {"driverCudaVersion": driver.version(), "deviceCount": count}


def _open_library(opened: list[HostFlagCore], lib_path: str, shared_round: SharedRound) -> Figures:
    core = HostFlagCore(lib_path, spin_us=1000, nap_us=20, page=shared_round.address)
    core.configure_reply(REPLY_CAPACITY, FAIL_STATUS)
    opened.append(core)
    return {"origin": core.lib_origin}


@dataclass(frozen=True, slots=True)
class DeviceChecks:
    """The checks of one device."""

    driver: CudaDriver
    core: HostFlagCore
    shared_round: SharedRound
    ordinal: int
    injection: Injection

    def run(self, checklist: Checklist, tell: Tell) -> None:
        """Makes them in order and stops at the first that does not pass: each builds on the one before."""
        part = f"{PART} {self.ordinal}"
        if not checklist.run(part, "identity", "device-identity", lambda: self._identify(tell)):
            return
        core = self.core
        stream = DeviceStream(self.driver, core, self.shared_round, self.ordinal, REPLY_CAPACITY)
        checks: list[tuple[str, str, Callable[[], Figures | None]]] = [
            ("set-up", "device-set-up", stream.set_up),
            ("park-and-go", "device-not-released", lambda: self._park_and_go(core, stream)),
            ("wrap", "device-wrap", lambda: self._wrap(core, stream)),
            ("fail-ahead", "device-fail-ahead", lambda: self._fail_ahead(core, stream)),
            ("rescue", "device-rescue", lambda: self._rescue(core, stream)),
            ("latency", "device-latency", lambda: measure_latency(core, stream)),
        ]
        for name, fault, check in checks:
            if not checklist.run(part, name, fault, check):
                break
        if checklist.checks()[-1].outcome is not Outcome.STUCK:
            checklist.run(part, "tear-down", "device-tear-down", stream.tear_down)

    def _identify(self, tell: Tell) -> None:
        tell(DEVICE, self.driver.describe(self.ordinal))

    def _park_and_go(self, core: HostFlagCore, stream: DeviceStream) -> None:
        """One round in slow motion: gathered is seen, the stream is parked, the host stores, it goes on."""
        set_words(core, 0)
        proxy = FaultyProxy(core, REPLY_CAPACITY, self.injection, broken_round=1)
        stream.queue_round(1)
        stream.expect_gathered(1)
        stream.expect_parked(1, PARKED_NS)
        answer = threading.Thread(target=proxy.answer, args=(1,), name="selftest-proxy", daemon=True)
        answer.start()
        try:
            stream.expect_consumed(1)
        finally:
            proxy.stream_gave_up.set()
            answer.join()
        if stream.reply() != reply_of(1, REPLY_CAPACITY):
            raise CheckFailedError(
                "device-reply", "the stream went on, but the device read another reply than was stored"
            )

    def _wrap(self, core: HostFlagCore, stream: DeviceStream) -> None:
        """Rounds across 2^32, each seen parked before it is published; 0 the longest, since 2^32 - 1 >= 0 unsigned."""
        set_words(core, JUST_BELOW_WRAP - 1)
        proxy = FaultyProxy(core, REPLY_CAPACITY, Injection.NONE, broken_round=0)
        for round_number in range(JUST_BELOW_WRAP, JUST_BELOW_WRAP + WRAP_ROUNDS):
            stream.queue_round(round_number)
            stream.expect_gathered(round_number)
            is_first_after = round_number % 2**32 == 0
            stream.expect_parked(round_number, PARKED_NS if is_first_after else PARKED_NS // WRAP_ROUNDS)
            proxy.answer(round_number)
            stream.expect_consumed(round_number)
            if stream.reply() != reply_of(round_number, REPLY_CAPACITY):
                raise CheckFailedError("device-reply", f"the device read a wrong reply of round {round_number % 2**32}")

    def _fail_ahead(self, core: HostFlagCore, stream: DeviceStream) -> None:
        """A parked stream and the next rounds go on with a failed reply; 2^30 ahead lies beyond the wrap."""
        set_words(core, JUST_BELOW_WRAP - 1)
        failed = FAIL_STATUS.to_bytes(4, "little", signed=True) + bytes(REPLY_CAPACITY - 4)
        stream.queue_round(JUST_BELOW_WRAP)
        stream.expect_gathered(JUST_BELOW_WRAP)
        core.fail_ahead()
        stream.expect_consumed(JUST_BELOW_WRAP)
        for round_number in range(JUST_BELOW_WRAP + 1, JUST_BELOW_WRAP + WRAP_ROUNDS):
            stream.queue_round(round_number)
            stream.expect_consumed(round_number)
        if stream.reply() != failed:
            raise CheckFailedError("device-fail-ahead", "a round that was failed ahead came without the failed reply")

    def _rescue(self, core: HostFlagCore, stream: DeviceStream) -> None:
        """A bare release, without claim and reply, lets a parked stream go."""
        set_words(core, 0)
        stream.queue_round(1)
        stream.expect_gathered(1)
        stream.expect_parked(1, PARKED_NS)
        core.release(1)
        stream.expect_consumed(1)
