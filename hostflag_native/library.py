"""Finds and loads the hand-off library."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hostflag_native.errors import StreamSyncError
from hostflag_native.native_library import HOSTFLAG, NativeLibrary
from hostflag_native.symbols import bind_hostflag

LIB_PATH_VARIABLE: Final = "VLLM_DSPARK_REMOTE_HOSTFLAG_LIB"
"""The engine's setting whose value it gives as lib_path; errors name it so that its user finds it."""

LIB_DIR_VARIABLE: Final = "VLLM_DSPARK_REMOTE_OFL_DIR"
"""A directory that may hold a copy of the library."""


def load_hostflag(lib_path: str = "") -> tuple[ctypes.CDLL, str]:
    """Loads the first hand-off library that exists, and binds it.

    1. lib_path, if given: it must exist.
    2. $VLLM_DSPARK_REMOTE_OFL_DIR's copy.
    3. The copy inside the installed package.
    4. The C source, compiled into a directory that only this user can write.

    Returns:
        The bound library and its origin: the path, with " (compiled at startup)" for 4.

    Raises:
        StreamSyncError: lib_path does not exist, what was found is not this library, or it cannot be built.
    """
    if lib_path:
        if not Path(lib_path).is_file():
            raise StreamSyncError(f"{LIB_PATH_VARIABLE}={lib_path} does not exist")
        return _load_file(lib_path, bind_hostflag)
    directory = os.environ.get(LIB_DIR_VARIABLE, "")
    if directory:
        copy = Path(directory) / HOSTFLAG.file_name
        if copy.is_file():
            return _load_file(str(copy), bind_hostflag)
    return load_packaged_or_compiled(HOSTFLAG, bind_hostflag)


Bind = Callable[[ctypes.CDLL, str], ctypes.CDLL]
"""Gives a library's functions their signatures; raises StreamSyncError for a wrong library, naming its origin."""


def load_packaged_or_compiled(library: NativeLibrary, bind: Bind) -> tuple[ctypes.CDLL, str]:
    """Steps 3 and 4 of load_hostflag, for any library of this package."""
    if library.packaged_path.is_file():
        return _load_file(str(library.packaged_path), bind)
    from hostflag_native.runtime_build import load_compiled  # noqa: PLC0415  most processes never build

    return load_compiled(library, bind)


def _load_file(path: str, bind: Bind) -> tuple[ctypes.CDLL, str]:
    try:
        library = ctypes.CDLL(os.path.abspath(path))  # noqa: PTH100  a bare name would be looked for elsewhere
    except OSError as error:
        raise StreamSyncError(f"{path} cannot be loaded: {error}") from error
    return bind(library, path), path
