"""The C functions as ctypes sees them: one row per function, in the order of csrc/hostflag.h."""

import ctypes
from dataclasses import dataclass
from typing import Any, Final

from hostflag_native.errors import StreamSyncError

_P = ctypes.c_void_p
_INT = ctypes.c_int
_U32 = ctypes.c_uint32
_I32 = ctypes.c_int32
_I64 = ctypes.c_int64
_SIZE = ctypes.c_size_t

HOSTFLAG_VERSION: Final = 2
"""The interface version that this binding speaks; dsv41_hf_version must say the same."""


@dataclass(frozen=True, slots=True)
class CFunction:
    """One exported function: its name, its result (None: void) and its parameters."""

    name: str
    result: Any
    parameters: tuple[Any, ...]


HOSTFLAG_FUNCTIONS: Final = (
    CFunction("dsv41_hf_version", _INT, ()),
    CFunction("dsv41_hf_alloc", _P, (_SIZE,)),
    CFunction("dsv41_hf_free", None, (_P,)),
    CFunction("dsv41_hf_lock", _INT, (_P, _SIZE)),
    CFunction("dsv41_hf_load", _U32, (_P,)),
    CFunction("dsv41_hf_release_max", None, (_P, _U32)),
    CFunction("dsv41_hf_store", None, (_P, _U32)),
    CFunction("dsv41_hf_set", None, (_P, _U32)),
    CFunction("dsv41_hf_claim", _INT, (_P, _U32)),
    CFunction("dsv41_hf_publish", _INT, (_P, _P, _U32, _P, _P, _SIZE)),
    CFunction("dsv41_hf_fail_release", _INT, (_P, _P, _U32, _P, _SIZE, _I32)),
    CFunction("dsv41_hf_wait_geq", _INT, (_P, _U32, _I64, _I64, _I64)),
    CFunction("dsv41_hf_watchdog_start", _P, (_P, _P, _P, _P, _SIZE, _I32, _I64, _I64)),
    CFunction("dsv41_hf_watchdog_stats", None, (_P, _P)),
    CFunction("dsv41_hf_watchdog_stop", _INT, (_P,)),
)


def bind_functions(library: ctypes.CDLL, functions: tuple[CFunction, ...], origin: str) -> None:
    """Gives every function of the library its signature.

    Raises:
        StreamSyncError: the library lacks one; names the library and the function.
    """
    for function in functions:
        try:
            symbol = getattr(library, function.name)
        except AttributeError as error:
            raise StreamSyncError(
                f"{origin} is not the expected library: it has no symbol {function.name}; "
                "rebuild it from this package's csrc/ or remove it"
            ) from error
        symbol.restype = function.result
        symbol.argtypes = function.parameters


def bind_hostflag(library: ctypes.CDLL, origin: str) -> ctypes.CDLL:
    """Binds the hand-off library and checks its version; returns the same object.

    Raises:
        StreamSyncError: a symbol is missing or the version differs; names the library.
    """
    bind_functions(library, HOSTFLAG_FUNCTIONS, origin)
    version = library.dsv41_hf_version()
    if version != HOSTFLAG_VERSION:
        raise StreamSyncError(
            f"{origin} has hostflag version {version}, expected {HOSTFLAG_VERSION}; "
            "rebuild it from this package's csrc/ or remove it"
        )
    return library
