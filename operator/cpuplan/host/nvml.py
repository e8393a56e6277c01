"""NVML, asked for what NVIDIA's files do not tell: the GPU of a MIG device, a GPU that is not initialised yet.

Optional: the library comes with the driver and is in a container only where the runtime put it there. It is loaded
at the first question; where that fails, or NVML answers with an error, the answer is None, and why is kept.

Source: nvml.h of NVIDIA's driver (nvmlReturn_t, nvmlPciInfo_t, the _v2 and _v3 symbols).
"""

from __future__ import annotations

import ctypes
import threading

_SUCCESS = 0
_BUS_ID_BYTES = 32


class _PciInfo(ctypes.Structure):
    """nvmlPciInfo_t as nvmlDeviceGetPciInfo_v3 fills it."""

    _fields_ = (
        ("bus_id_legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pci_device_id", ctypes.c_uint),
        ("pci_subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * _BUS_ID_BYTES),
    )


class NvmlAddresses:
    """From the UUID of a GPU or MIG device to its GPU's PCI address.

    Args:
        library: file or soname of NVML, such as `libnvidia-ml.so.1`.
    """

    def __init__(self, library: str) -> None:
        self._name = library
        self._library: ctypes.CDLL | None = None
        self._lock = threading.Lock()
        self.trouble: str | None = None
        """Why the last question had no answer; None when it had one."""

    def __call__(self, uuid: str) -> str | None:
        """The PCI address as NVML writes it (`00000000:1B:00.0`), None where it has no answer."""
        with self._lock:
            library = self._loaded()
            return None if library is None else self._address(library, uuid)

    def _loaded(self) -> ctypes.CDLL | None:
        """The initialised library; tried again at every question, since drivers come late."""
        if self._library is None:
            try:
                library = ctypes.CDLL(self._name)
                if not self._call(library, "nvmlInit_v2"):
                    return None
            except (OSError, AttributeError) as error:
                self.trouble = f"NVML cannot be loaded from {self._name}: {error}"
                return None
            self._library = library
        return self._library

    def _address(self, library: ctypes.CDLL, uuid: str) -> str | None:
        handle, parent, info = ctypes.c_void_p(), ctypes.c_void_p(), _PciInfo()
        if not self._call(library, "nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(handle)):
            return None
        if uuid.upper().startswith("MIG-"):
            name = "nvmlDeviceGetDeviceHandleFromMigDeviceHandle"
            if not self._call(library, name, handle, ctypes.byref(parent)):
                return None
            handle = parent
        if not self._call(library, "nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(info)):
            return None
        return bytes(info.bus_id).decode("ascii", "replace")

    def _call(self, library: ctypes.CDLL, name: str, *arguments: object) -> bool:
        code = getattr(library, name)(*arguments)
        self.trouble = None if code == _SUCCESS else f"NVML: {name} answered with error {code}"
        return bool(code == _SUCCESS)
