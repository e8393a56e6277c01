"""The CUDA driver API as far as the self-test needs it, bound by the names that cuda.h maps each call to.

The bare cuStreamWaitValue32 and cuStreamWriteValue32 are the old, usually disabled calls: only the _v2 names are bound.
"""

import ctypes
import os
import uuid
from typing import Any, Final

from hostflag_native.selftest.verdict import CheckFailedError, UntestedError
from hostflag_native.symbols import CFunction

DRIVER_LIBRARY: Final = "libcuda.so.1"

SUCCESS: Final = 0
NOT_READY: Final = 600
"""CUDA_ERROR_NOT_READY: cuStreamQuery's answer while work is pending."""

_NO_DRIVER: Final = {34: "a stub library", 35: "an insufficient driver"}
_NO_DEVICE: Final = 100

STREAM_NON_BLOCKING: Final = 0x1
EVENT_DEFAULT: Final = 0x0

_P = ctypes.c_void_p
_U32 = ctypes.c_uint32
_INT = ctypes.c_int
_UINT = ctypes.c_uint
_SIZE = ctypes.c_size_t
_DEVICE_POINTER = ctypes.c_uint64

DRIVER_FUNCTIONS: Final = (
    CFunction("cuInit", _INT, (_UINT,)),
    CFunction("cuDriverGetVersion", _INT, (_P,)),
    CFunction("cuGetErrorName", _INT, (_INT, _P)),
    CFunction("cuDeviceGetCount", _INT, (_P,)),
    CFunction("cuDeviceGet", _INT, (_P, _INT)),
    CFunction("cuDeviceGetName", _INT, (_P, _INT, _INT)),
    CFunction("cuDeviceGetPCIBusId", _INT, (_P, _INT, _INT)),
    CFunction("cuDeviceGetAttribute", _INT, (_P, _INT, _INT)),
    CFunction("cuDevicePrimaryCtxRetain", _INT, (_P, _INT)),
    CFunction("cuDevicePrimaryCtxRelease_v2", _INT, (_INT,)),
    CFunction("cuCtxSetCurrent", _INT, (_P,)),
    CFunction("cuMemHostRegister_v2", _INT, (_P, _SIZE, _UINT)),
    CFunction("cuMemHostUnregister", _INT, (_P,)),
    CFunction("cuMemHostGetDevicePointer_v2", _INT, (_P, _P, _UINT)),
    CFunction("cuMemAlloc_v2", _INT, (_P, _SIZE)),
    CFunction("cuMemFree_v2", _INT, (_DEVICE_POINTER,)),
    CFunction("cuMemAllocHost_v2", _INT, (_P, _SIZE)),
    CFunction("cuMemFreeHost", _INT, (_P,)),
    CFunction("cuMemcpyHtoDAsync_v2", _INT, (_DEVICE_POINTER, _P, _SIZE, _P)),
    CFunction("cuMemcpyDtoHAsync_v2", _INT, (_P, _DEVICE_POINTER, _SIZE, _P)),
    CFunction("cuStreamCreate", _INT, (_P, _UINT)),
    CFunction("cuStreamDestroy_v2", _INT, (_P,)),
    CFunction("cuStreamQuery", _INT, (_P,)),
    CFunction("cuEventCreate", _INT, (_P, _UINT)),
    CFunction("cuEventDestroy_v2", _INT, (_P,)),
    CFunction("cuEventRecord", _INT, (_P, _P)),
    CFunction("cuEventElapsedTime", _INT, (_P, _P, _P)),
    CFunction("cuStreamWaitValue32_v2", _INT, (_P, _DEVICE_POINTER, _U32, _UINT)),
    CFunction("cuStreamWriteValue32_v2", _INT, (_P, _DEVICE_POINTER, _U32, _UINT)),
)

# cuda.h of CUDA 12.8 maps cuEventElapsedTime to a _v2, which older drivers lack; every driver has the first one.

UUID_FUNCTIONS: Final = ("cuDeviceGetUuid_v2", "cuDeviceGetUuid")
"""The newer one tells a MIG instance's own UUID; drivers before 11.4 have the older one only."""

REPORTED_ATTRIBUTES: Final = {
    "integrated": 18,
    "canMapHostMemory": 19,
    "computeCapabilityMajor": 75,
    "computeCapabilityMinor": 76,
    "canUseHostPointerForRegisteredMem": 91,
    "canUseStreamMemOpsV1": 92,
    "canFlushRemoteWrites": 98,
    "hostRegisterSupported": 99,
    "canUse64BitStreamMemOps": 122,
    "canUseStreamWaitValueNor": 123,
}
"""CU_DEVICE_ATTRIBUTE_* by their numbers in cuda.h. Reported, never trusted: what a device does is tested."""


class CudaDriver:
    """The bound driver; every call that fails raises, with the driver's own name of the error."""

    def __init__(self) -> None:
        """Loads the driver library by its soname.

        Raises:
            UntestedError: there is none.
            CheckFailedError: it lacks a function.
        """
        try:
            self._library: Any = ctypes.CDLL(DRIVER_LIBRARY)
        except OSError as error:
            raise UntestedError("no-driver", f"{DRIVER_LIBRARY} cannot be loaded: {error}") from error
        for function in DRIVER_FUNCTIONS:
            self._bind(function)
        self._get_uuid = next((n for n in UUID_FUNCTIONS if hasattr(self._library, n)), None)

    def call(self, fault: str, name: str, *arguments: Any) -> None:
        """Calls a function.

        Raises:
            CheckFailedError: it returned an error; has the fault code given.
        """
        result = self.result_of(name, *arguments)
        if result != SUCCESS:
            raise CheckFailedError(fault, f"{name} returned {self.error_name(result)}")

    def result_of(self, name: str, *arguments: Any) -> int:
        """Calls a function and returns its CUresult."""
        return int(getattr(self._library, name)(*arguments))

    def error_name(self, result: int) -> str:
        """What the driver calls a CUresult, with its number."""
        text = ctypes.c_char_p()
        self._library.cuGetErrorName(result, ctypes.byref(text))
        return f"{text.value.decode() if text.value else 'an unknown error'} ({result})"

    def initialise(self) -> int:
        """Initialises the driver; returns how many devices are visible.

        Raises:
            UntestedError: a stub, or no device.
            CheckFailedError: another error.
        """
        result = self.result_of("cuInit", 0)
        if result in _NO_DRIVER:
            raise UntestedError("no-driver", f"{DRIVER_LIBRARY} is {_NO_DRIVER[result]}: {self.error_name(result)}")
        if result == _NO_DEVICE:
            raise UntestedError("no-device", "the driver sees no device")
        if result != SUCCESS:
            raise CheckFailedError("device-init", f"cuInit returned {self.error_name(result)}")
        count = ctypes.c_int()
        self.call("device-init", "cuDeviceGetCount", ctypes.byref(count))
        if count.value == 0:
            raise UntestedError("no-device", "the driver sees no device")
        return count.value

    def version(self) -> str:
        """The CUDA version the driver implements, as in 12.4."""
        version = ctypes.c_int()
        self.call("device-init", "cuDriverGetVersion", ctypes.byref(version))
        return f"{version.value // 1000}.{version.value % 1000 // 10}"

    def device(self, ordinal: int) -> int:
        """The CUdevice of an ordinal."""
        device = ctypes.c_int()
        self.call("device-identity", "cuDeviceGet", ctypes.byref(device), ordinal)
        return device.value

    def describe(self, ordinal: int) -> dict[str, Any]:
        """Identity and attributes of a device: ordinals are no identity, UUID and PCI address are."""
        device = self.device(ordinal)
        name, address = ctypes.create_string_buffer(256), ctypes.create_string_buffer(32)
        self.call("device-identity", "cuDeviceGetName", name, len(name), device)
        self.call("device-identity", "cuDeviceGetPCIBusId", address, len(address), device)
        text = name.value.decode(errors="replace")
        is_mig = "MIG " in text
        return {
            "ordinal": ordinal,
            "name": text,
            "uuid": self._uuid(device, "MIG" if is_mig else "GPU"),
            "pciAddress": address.value.decode().lower(),
            "mig": is_mig,
            "attributes": {key: self._attribute(number, device) for key, number in REPORTED_ATTRIBUTES.items()},
        }

    def _uuid(self, device: int, prefix: str) -> str | None:
        if self._get_uuid is None:
            return None
        raw = ctypes.create_string_buffer(16)
        getattr(self._library, self._get_uuid).argtypes = (_P, _INT)
        self.call("device-identity", self._get_uuid, raw, device)
        return f"{prefix}-{uuid.UUID(bytes=raw.raw)}"

    def _attribute(self, number: int, device: int) -> int | None:
        value = ctypes.c_int()
        is_told = self.result_of("cuDeviceGetAttribute", ctypes.byref(value), number, device) == SUCCESS
        return value.value if is_told else None

    def _bind(self, function: CFunction) -> None:
        try:
            symbol = getattr(self._library, function.name)
        except AttributeError as error:
            raise CheckFailedError(
                "device-no-memops" if "Value32" in function.name else "device-old-driver",
                f"{DRIVER_LIBRARY} has no {function.name}; a driver for CUDA 11.7 or newer has it",
            ) from error
        symbol.restype = function.result
        symbol.argtypes = function.parameters


def is_launch_blocking() -> bool:
    """True if CUDA_LAUNCH_BLOCKING makes every launch wait: a parked stream would then never return."""
    return os.environ.get("CUDA_LAUNCH_BLOCKING", "").strip() not in {"", "0"}
