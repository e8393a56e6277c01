"""The self-test's device part, on a stand-in libcuda.so.1 whose streams are threads (standin/libcuda.c)."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostflag_native import selftest as selftest_module
from hostflag_native.selftest import Outcome
from tests.hostflag.selftest_process import Told, finish, selftest, start
from tests.hostflag.standin_driver import SOURCE, compile_standin

DEVICE_0 = "device 0 at 0000:a0:00.0"
STUCK = f"stuck device-stuck: {DEVICE_0}: the stream stayed parked at round 1 after the rescue"
RESCUED = f"fail device-not-released: {DEVICE_0}: the stream did not go on with round 1"
DEVICE_CHECKS = ["identity", "set-up", "park-and-go", "wrap", "fail-ahead", "rescue", "latency", "tear-down"]


@pytest.fixture(scope="module")
def standin(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of the stand-in driver library."""
    return str(compile_standin(tmp_path_factory.mktemp("standin")).parent)


@pytest.fixture(scope="module")
def stuck_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the driver of the stuck device notes its calls."""
    return tmp_path_factory.mktemp("calls") / "stuck"


@pytest.fixture(scope="module", autouse=True)
def slow_tests(standin: str, stuck_log: Path) -> Iterator[dict[str, "subprocess.Popen[str]"]]:
    """The self-tests whose faults show only after seconds of waiting: all started before the other tests."""
    runs = {
        "stuck": ({"STANDIN_FAULTS": "stuck", "STANDIN_DEVICES": "2", "STANDIN_LOG": str(stuck_log)}, ()),
        "late": ({"STANDIN_FAULTS": "late"}, ()),
        "no-write": ({"STANDIN_FAULTS": "no-write"}, ()),
        "stream-error": ({"STANDIN_FAULTS": "stream-error"}, ()),
        "slow": ({"STANDIN_FAULTS": "slow"}, ()),
        "inject-no-store": ({}, ("--inject", "no-store")),
        "inject-late": ({}, ("--inject", "late")),
        "inject-wrong-word": ({}, ("--inject", "wrong-word")),
    }
    started = {
        name: start("--part", "device", *arguments, LD_LIBRARY_PATH=standin, **environment)
        for name, (environment, arguments) in runs.items()
    }
    for injection in ("no-store", "late", "wrong-word"):
        started[f"host-{injection}"] = start("--part", "host", "--inject", injection)
    yield started
    for process in started.values():
        process.kill()
        process.communicate()


def _device_test(standin: str, faults: str = "", **environment: str) -> Told:
    return selftest("--part", "device", LD_LIBRARY_PATH=standin, STANDIN_FAULTS=faults, **environment)


def test_a_sound_device_passes_every_check(standin: str, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    told = _device_test(standin, STANDIN_LOG=str(log))
    assert told.exit_code == 0, told.line
    assert told.outcomes("device 0") == dict.fromkeys(DEVICE_CHECKS, "pass")
    assert told.outcomes("device") == {"driver": "pass", "library": "pass"}
    assert log.read_text().split() == [
        "cuInit",
        "cuDevicePrimaryCtxRetain",
        "cuMemHostRegister_v2",
        "cuMemAlloc_v2",
        "cuMemAllocHost_v2",
        "cuStreamCreate",
        "cuStreamDestroy_v2",
        "cuMemFreeHost",
        "cuMemFree_v2",
        "cuMemHostUnregister",
        "cuDevicePrimaryCtxRelease_v2",
    ]


def test_latency_is_measured_as_a_whole_and_each_way(standin: str) -> None:
    (latency,) = [c for c in _device_test(standin).details["parts"]["device 0"] if c["name"] == "latency"]
    figures = latency["figures"]
    assert list(figures) == ["wordsOnly", "with60KiBReply", "ways"]
    ways = figures["ways"]
    assert ways["hostToStream"]["count"] == ways["streamToHost"]["count"] >= 64
    assert min(way["minNs"] for way in (ways["hostToStream"], ways["streamToHost"])) >= 0
    assert ways["uncertainNs"] < figures["wordsOnly"]["maxNs"]


def test_a_device_without_events_has_no_figures_of_each_way_and_passes(standin: str) -> None:
    told = _device_test(standin, "no-events")
    (latency,) = [c for c in told.details["parts"]["device 0"] if c["name"] == "latency"]
    assert told.exit_code == 0
    assert latency["figures"]["ways"] == {"notMeasured": "cuEventCreate returned CUDA_ERROR_NOT_SUPPORTED (801)"}


def test_every_device_is_tested_and_named_by_uuid_and_address(standin: str) -> None:
    told = _device_test(standin, STANDIN_DEVICES="2")
    assert told.exit_code == 0
    assert told.line.startswith("pass ok: 18 checks in ")
    named = [(device["uuid"], device["pciAddress"], device["mig"]) for device in told.details["devices"]]
    assert named == [
        ("GPU-20202020-2020-2020-2020-202020202020", "0000:a0:00.0", False),
        ("GPU-21212121-2121-2121-2121-212121212121", "0000:a1:00.0", False),
    ]


def test_attributes_are_reported_and_not_trusted(standin: str) -> None:
    told = _device_test(standin, "attributes-say-no mig")
    assert told.exit_code == 0
    (device,) = told.details["devices"]
    assert device["attributes"]["canUseStreamMemOpsV1"] == 0
    assert device["attributes"]["canFlushRemoteWrites"] is None
    assert (device["mig"], device["uuid"][:5]) == (True, "MIG-2")


@pytest.mark.parametrize(
    ("faults", "exit_code", "line"),
    [
        ("no-device", 2, "untested no-device: the driver sees no device"),
        ("stub", 2, "untested no-driver: libcuda.so.1 is a stub library: CUDA_ERROR_STUB_LIBRARY (34)"),
        ("init-error", 1, "fail device-init: cuInit returned CUDA_ERROR_UNKNOWN (999)"),
        (
            "context-error",
            1,
            f"fail device-context: {DEVICE_0}: cuDevicePrimaryCtxRetain returned CUDA_ERROR_UNKNOWN (999)",
        ),
        (
            "register-error",
            1,
            f"fail device-register: {DEVICE_0}: cuMemHostRegister_v2 returned CUDA_ERROR_NOT_SUPPORTED (801)",
        ),
        ("memory-error", 1, f"fail device-memory: {DEVICE_0}: cuMemAlloc_v2 returned an unknown error (2)"),
        (
            "queue-error",
            1,
            f"fail device-queue: {DEVICE_0}: cuStreamWriteValue32_v2 returned CUDA_ERROR_NOT_SUPPORTED (801)",
        ),
        ("no-wait", 1, f"fail device-not-parked: {DEVICE_0}: the stream went on with round 1 before it was released"),
        (
            "stale-reply",
            1,
            f"fail device-reply: {DEVICE_0}: the stream went on, but the device read another reply than was stored",
        ),
    ],
)
def test_a_fault_of_driver_or_device_is_told(standin: str, faults: str, exit_code: int, line: str) -> None:
    told = _device_test(standin, faults)
    assert told.exit_code == exit_code
    assert told.line.startswith(line)


def test_a_device_that_compares_unsigned_is_found_at_the_wrap_and_not_stuck(standin: str) -> None:
    """It goes on with round 0 unreleased; should a busy machine miss that, failing ahead does not reach it."""
    told = _device_test(standin, "unsigned-compare")
    assert told.exit_code == 1
    assert told.details["fault"] in {"device-not-parked", "device-compare"}


def test_the_old_memory_operations_are_not_taken_for_the_new(tmp_path: Path) -> None:
    told = _device_test(str(compile_standin(tmp_path, "-DV1_ONLY").parent))
    assert told.exit_code == 1
    assert told.line.startswith("fail device-no-memops: libcuda.so.1 has no cuStreamWaitValue32_v2; a driver for CUDA")


def test_an_older_driver_tells_the_uuid_too(tmp_path: Path) -> None:
    told = _device_test(str(compile_standin(tmp_path, "-DOLD_UUID").parent))
    assert told.details["devices"][0]["uuid"] == "GPU-10101010-1010-1010-1010-101010101010"


@pytest.mark.parametrize(("value", "exit_code"), [("1", 1), ("0", 0), ("", 0)])
def test_launch_blocking_is_refused_before_anything_is_queued(
    standin: str, tmp_path: Path, value: str, exit_code: int
) -> None:
    log = tmp_path / "calls"
    told = _device_test(standin, CUDA_LAUNCH_BLOCKING=value, STANDIN_LOG=str(log))
    assert told.exit_code == exit_code
    assert told.line.startswith("fail launch-blocking: CUDA_LAUNCH_BLOCKING is set") == (value == "1")
    assert ("cuStreamCreate" in log.read_text()) == (value != "1")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "line"),
    [
        ((), 2, "untested no-driver: libcuda.so.1 cannot be loaded"),
        (("--require-gpu",), 1, "fail no-driver: libcuda.so.1 cannot be loaded"),
    ],
)
def test_a_machine_without_a_driver_is_untested_unless_a_gpu_is_required(
    tmp_path: Path, arguments: tuple[str, ...], exit_code: int, line: str
) -> None:
    (tmp_path / "libcuda.so.1").write_text("no library")
    told = selftest("--part", "device", *arguments, LD_LIBRARY_PATH=str(tmp_path))
    assert (told.exit_code, told.line[: len(line)]) == (exit_code, line)


def test_a_library_that_is_missing_is_told_as_such_before_a_device_is_touched(standin: str, tmp_path: Path) -> None:
    told = selftest(
        "--part", "device", "--lib", "/no/such.so", LD_LIBRARY_PATH=standin, STANDIN_LOG=str(tmp_path / "log")
    )
    assert (told.exit_code, told.line) == (
        1,
        "fail host-library: VLLM_DSPARK_REMOTE_HOSTFLAG_LIB=/no/such.so does not exist",
    )
    assert (tmp_path / "log").read_text().split() == ["cuInit"]


def test_the_worst_part_decides(standin: str) -> None:
    told = selftest("--lib", "/no/such/library.so", LD_LIBRARY_PATH=standin, STANDIN_FAULTS="no-device")
    assert told.exit_code == 1
    assert (told.outcomes("host"), told.outcomes("device")) == ({"library": "fail"}, {"driver": "untested"})


def test_the_function_names_the_devices(standin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", standin)
    verdict = selftest_module.run(host_part=False, device_part=True)
    assert (verdict.outcome, verdict.device_uuids) == (Outcome.PASS, ("GPU-20202020-2020-2020-2020-202020202020",))


@pytest.mark.parametrize(
    ("name", "exit_code", "line"),
    [
        ("stuck", 3, f"{STUCK}: this device does not observe host stores"),
        ("late", 1, f"{RESCUED} within 2 s; a release rescued it"),
        (
            "no-write",
            1,
            f"fail device-not-gathered: {DEVICE_0}: the host saw no store of the stream within 2 s: cuStreamWrite",
        ),
        ("stream-error", 1, f"fail device-error: {DEVICE_0}: the stream failed with CUDA_ERROR_ILLEGAL_ADDRESS (700)"),
        ("slow", 0, "pass ok: 10 checks in "),
        ("inject-no-store", 1, f"{RESCUED} within 2 s; a release rescued it"),
        ("inject-late", 1, f"{RESCUED} within 2 s; a release rescued it"),
        ("inject-wrong-word", 1, f"{RESCUED} within 2 s; a release rescued it"),
        ("host-no-store", 1, "fail host-not-released: round 101 was not released within 2 s; the rescue released it"),
        ("host-late", 1, "fail host-not-released: round 101 was not released within 2 s; the rescue released it"),
        ("host-wrong-word", 1, "fail host-not-released: round 101 was not released within 2 s; the rescue released it"),
    ],
)
def test_a_fault_that_shows_by_waiting_is_told(
    slow_tests: dict[str, "subprocess.Popen[str]"], name: str, exit_code: int, line: str
) -> None:
    told = finish(slow_tests[name])
    assert told.exit_code == exit_code
    assert told.line.startswith(line)


def test_after_a_stuck_device_no_other_is_touched_and_nothing_is_torn_down(
    slow_tests: dict[str, "subprocess.Popen[str]"], stuck_log: Path
) -> None:
    slow_tests["stuck"].wait(60)
    assert stuck_log.read_text().split()[-1] == "cuStreamCreate"


def test_every_fault_that_the_stand_in_can_have_is_tried() -> None:
    known = set(re.findall(r'has_fault\("([^"]+)"\)', SOURCE.read_text()))
    tests = Path(__file__).read_text() + Path(__file__).with_name("test_selftest_limit.py").read_text()
    tried = {word for text in re.findall(r'"([^"\n]*)"', tests) for word in text.split()}
    assert known <= tried
