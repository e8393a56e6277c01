"""The self-test's device part on a real device. Run with `pytest tests/gpu -s` where one is; prints what it shows."""

import ctypes
import json

import pytest

from tests.hostflag.selftest_process import Told, selftest

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def told() -> Told:
    """What the device part says of every visible device; its figures are printed."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        pytest.skip(f"needs a GPU and its driver: {error}")
    told = selftest("--part", "device", "--termination-log", "")
    print(told.line, json.dumps(told.details, indent=1), sep="\n")  # noqa: T201  the figures are the purpose
    return told


def test_every_device_observes_host_stores(told: Told) -> None:
    assert told.exit_code == 0, told.line
    assert len(told.details["devices"]) == told.details["parts"]["device"][0]["figures"]["deviceCount"]


@pytest.mark.parametrize("injection", ["no-store", "late", "wrong-word"])
@pytest.mark.usefixtures("told")
def test_an_injected_fault_is_found_and_the_rescue_ends_it(injection: str) -> None:
    broken = selftest("--part", "device", "--inject", injection, "--termination-log", "")
    assert broken.exit_code == 1
    assert broken.line.startswith("fail device-not-released: ")


@pytest.mark.usefixtures("told")
def test_launch_blocking_is_refused() -> None:
    refused = selftest("--part", "device", "--termination-log", "", CUDA_LAUNCH_BLOCKING="1")
    assert (refused.exit_code, refused.details["fault"]) == (1, "launch-blocking")
