"""The measured loops of csrc/probe.c as ctypes sees them."""

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from hostflag_native.library import load_packaged_or_compiled
from hostflag_native.native_library import PROBE
from hostflag_native.symbols import CFunction, bind_functions

_P = ctypes.c_void_p
_U32 = ctypes.c_uint32
_I64 = ctypes.c_int64
_SIZE = ctypes.c_size_t

PROBE_FUNCTIONS: Final = (
    CFunction("hf_probe_stream", _I64, (_P, _P, _P, _P, _P, _P)),
    CFunction("hf_probe_proxy", _I64, (_P, _P, _P, _P, _P)),
    CFunction("hf_probe_bare_ping", _I64, (_P, _P, _P)),
    CFunction("hf_probe_bare_pong", _I64, (_P, _P)),
    CFunction("hf_probe_futex_ping", _I64, (_P, _P, _P)),
    CFunction("hf_probe_futex_pong", _I64, (_P, _P)),
    CFunction("hf_probe_fd_ping", _I64, (ctypes.c_int, ctypes.c_int, _P, _P)),
    CFunction("hf_probe_fd_pong", _I64, (ctypes.c_int, ctypes.c_int)),
    CFunction("hf_probe_publish_cost", None, (_P, _P, _U32, _U32, _U32, _P, _SIZE, _P)),
    CFunction("hf_probe_copy_cost", None, (_P, _U32, _U32, _P, _SIZE, _P)),
    CFunction("hf_probe_naps", None, (_I64, _I64)),
)


class ProbeCalls(ctypes.Structure):
    """struct hf_probe_calls: the hand-off functions under measurement."""

    _fields_: ClassVar = [("store", _P), ("wait_geq", _P), ("publish", _P)]

    @classmethod
    def of(cls, library: ctypes.CDLL) -> "ProbeCalls":
        """The functions of a loaded hand-off library."""
        found = (library.dsv41_hf_store, library.dsv41_hf_wait_geq, library.dsv41_hf_publish)
        return cls(*(ctypes.cast(function, _P) for function in found))


class ProbeRounds(ctypes.Structure):
    """struct hf_probe_rounds: what both sides of a measured hand-off agree on."""

    _fields_: ClassVar = [
        ("first", _U32),
        ("count", _U32),
        ("reply_bytes", _U32),
        ("pause_ns", _U32),
        ("spin_ns", _I64),
        ("nap_ns", _I64),
        ("limit_ns", _I64),
        ("budget_ns", _I64),
    ]


@functools.cache
def load_probe() -> Any:
    """The bound probe library, from the package or compiled.

    Raises:
        StreamSyncError: neither is possible.
    """
    library, _ = load_packaged_or_compiled(PROBE, _bind)
    return library


def _bind(library: ctypes.CDLL, origin: str) -> ctypes.CDLL:
    bind_functions(library, PROBE_FUNCTIONS, origin)
    return library


@dataclass(frozen=True, slots=True)
class Distribution:
    """Order statistics of a measurement, in ns."""

    count: int
    min_ns: float
    p50_ns: float
    p99_ns: float
    p999_ns: float
    max_ns: float

    @classmethod
    def of(cls, samples_ns: Sequence[float]) -> "Distribution":
        """Nearest-rank percentiles of at least one sample."""
        ordered = sorted(samples_ns)

        def rank(share: float) -> float:
            return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

        return cls(len(ordered), ordered[0], rank(0.5), rank(0.99), rank(0.999), ordered[-1])

    def as_json(self) -> dict[str, float]:
        """The figures in whole ns, by their short names."""
        return {
            "count": self.count,
            "minNs": round(self.min_ns),
            "p50Ns": round(self.p50_ns),
            "p99Ns": round(self.p99_ns),
            "p999Ns": round(self.p999_ns),
            "maxNs": round(self.max_ns),
        }
