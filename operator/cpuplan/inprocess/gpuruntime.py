"""PCI addresses of the GPU runtime's logical devices, asked so that this process stays free to fork.

A torch that has initialised the device already knows. Otherwise a short-lived child process asks the driver: an
initialised CUDA or HIP runtime does not survive a fork, and an API server that only plans must never hold one.
"""

from __future__ import annotations

import json
import subprocess
import sys

ASK_SECONDS = 30.0
"""Limit for the child: the first start of a driver without persistence mode takes several seconds per GPU."""

_QUESTION = """
import ctypes, json
def read(library, init, count, handle, address):
    try:
        runtime = ctypes.CDLL(library)
    except OSError:
        return None
    number = ctypes.c_int()
    if (init and getattr(runtime, init)(0)) or getattr(runtime, count)(ctypes.byref(number)):
        return []
    found = []
    for index in range(number.value):
        device, text = ctypes.c_int(index), ctypes.create_string_buffer(64)
        failed = (handle and getattr(runtime, handle)(ctypes.byref(device), index)) or getattr(runtime, address)(
            text, 64, device)
        found.append(None if failed else text.value.decode("ascii", "replace"))
    return found
print(json.dumps(
    read("libcuda.so.1", "cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetPCIBusId")
    or read("libamdhip64.so", None, "hipGetDeviceCount", None, "hipDeviceGetPCIBusId") or []))
"""
"""The child's program. torch calls AMD's devices `cuda` too. Source: CUDA driver API and HIP runtime API references."""


class GpuRuntime:
    """The addresses of the runtime's devices; each kind is asked for at most once."""

    def __init__(self) -> None:
        self._asked: list[str | None] | None = None

    def __call__(self, kind: str, index: int) -> str | None:
        """The address of device `kind:index`, None where the platform reports none."""
        known = _ask_torch(kind, index)
        if known is not None or kind != "cuda":
            return known
        if self._asked is None:
            self._asked = _ask_driver()
        return self._asked[index] if index < len(self._asked) else None


def _ask_torch(kind: str, index: int) -> str | None:
    """What an imported torch knows without initialising anything; torch itself is never imported here."""
    runtime = getattr(sys.modules.get("torch"), kind, None)
    try:
        if not runtime.is_initialized():  # type: ignore[union-attr]
            return None
        properties = runtime.get_device_properties(index)  # type: ignore[union-attr]
        parts = (properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id)
        return "{:04x}:{:02x}:{:02x}.0".format(*parts)
    except (AttributeError, AssertionError, RuntimeError, TypeError, ValueError):
        return None


def _ask_driver() -> list[str | None]:
    """The addresses that the driver names, in its logical order; empty where there is none or it does not answer."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _QUESTION],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ASK_SECONDS,
            check=True,
        )
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
    return [address if isinstance(address, str) else None for address in found] if isinstance(found, list) else []
