"""The C libraries of this package: what each is built from."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

PACKAGE_DIR: Final = Path(__file__).resolve().parent
SOURCE_DIR: Final = PACKAGE_DIR / "csrc"


@dataclass(frozen=True, slots=True)
class NativeLibrary:
    """One shared library and its sources, by file name in csrc/; the first source is the one to compile."""

    file_name: str
    sources: tuple[str, ...]
    symbol_map: str

    @property
    def packaged_path(self) -> Path:
        """Where a wheel that carries the library has it."""
        return PACKAGE_DIR / self.file_name

    def input_paths(self) -> tuple[Path, ...]:
        """Everything the result depends on."""
        return tuple(SOURCE_DIR / name for name in (*self.sources, self.symbol_map))


HOSTFLAG_LIB: Final = "libdsv41_hostflag.so"
"""File name of the hand-off library, in every place where it is looked for."""

HOSTFLAG: Final = NativeLibrary(HOSTFLAG_LIB, ("hostflag.c", "hostflag.h", "hostflag_platform.h"), "hostflag.map")

PROBE: Final = NativeLibrary("libhostflag_probe.so", ("probe.c", "probe.h", "hostflag_platform.h"), "probe.map")
"""The measured loops of self-test and benchmark; engines do not load it."""
