"""Compiles a library of this package at run time, for installations whose wheel was built without a compiler."""

import contextlib
import ctypes
import fcntl
import logging
import os
import platform
import secrets
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from hostflag_native.errors import StreamSyncError
from hostflag_native.native_library import NativeLibrary
from hostflag_native.private_directory import PrivateDirectory, UnusableDirectoryError, candidate_directories

log = logging.getLogger(__name__)

COMPILE_LIMIT_SECONDS: Final = 120
"""A compiler that takes longer hangs (a network file system, a licence server): the C source takes about 1 s."""

_LOCK_POLL_SECONDS: Final = 0.05

_COMPILE_FLAGS: Final = ("-std=c11", "-O2", "-fPIC", "-shared", "-pthread")


@dataclass(frozen=True, slots=True)
class Compiler:
    """The system's C compiler: its command and a word that changes when the compiler does."""

    command: tuple[str, ...]
    identity: str


def find_compiler() -> Compiler:
    """$CC, else the first of cc, gcc, clang on PATH.

    Raises:
        StreamSyncError: there is none, or CC is not a command.
    """
    asked = os.environ.get("CC", "")
    try:
        commands = [shlex.split(asked)] if asked else [["cc"], ["gcc"], ["clang"]]
    except ValueError as error:
        raise StreamSyncError(f"CC={asked} is not a command ({error}); correct it or unset it") from error
    for command in commands:
        found = shutil.which(command[0]) if command else None
        if found is not None:
            program = Path(found).absolute()  # it runs in another directory
            status = program.stat()
            identity = f"{program.resolve()} {status.st_size} {status.st_mtime_ns} {command[1:]}"
            return Compiler((str(program), *command[1:]), identity)
    looked_for = f"CC={asked}" if asked else "cc, gcc and clang on PATH"
    raise StreamSyncError(
        f"no C compiler ({looked_for}) to build the hand-off library with; "
        "install one, or a wheel of this package that carries the library"
    )


def load_compiled(library: NativeLibrary, bind: Callable[[ctypes.CDLL, str], ctypes.CDLL]) -> tuple[ctypes.CDLL, str]:
    """Loads the library from the first usable directory, compiling it there if it is not there yet.

    Args:
        library: what to build.
        bind: gives the functions their signatures; raises StreamSyncError for a wrong library.

    Returns:
        The bound library and "<path> (compiled at startup)".

    Raises:
        StreamSyncError: no compiler, the compiler fails or takes over 120 s, or no directory is usable; says why
            for each directory.
    """
    compiler = find_compiler()
    file_name = cached_file_name(library, compiler)
    refusals: list[str] = []
    for candidate in candidate_directories():
        try:
            with candidate.open() as directory:
                return _load_or_compile(library, compiler, directory, file_name, bind)
        except UnusableDirectoryError as error:
            log.debug("build directory refused reason=%s", error)
            refusals.append(str(error))
    raise StreamSyncError(
        f"{library.file_name} cannot be built: no usable directory ({'; '.join(refusals)}); "
        "set HOSTFLAG_BUILD_DIR to a directory that only this user can write and that allows execution"
    )


def cached_file_name(library: NativeLibrary, compiler: Compiler) -> str:
    """The name of the compiled library: user, source, compiler and machine are in it."""
    digest = sha256()
    for path in library.input_paths():
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update(compiler.identity.encode() + b"\0" + " ".join(_COMPILE_FLAGS).encode())
    stem = library.file_name.removesuffix(".so")
    return f"{stem}-{os.geteuid()}-{platform.machine()}-{digest.hexdigest()[:24]}.so"


def _load_or_compile(
    library: NativeLibrary,
    compiler: Compiler,
    directory: PrivateDirectory,
    file_name: str,
    bind: Callable[[ctypes.CDLL, str], ctypes.CDLL],
) -> tuple[ctypes.CDLL, str]:
    """Under a lock that ends with its holder: load what is there if it is sound, else compile and load."""
    origin = f"{directory.path / file_name} (compiled at startup)"
    with _build_lock(directory, file_name):
        if directory.is_own_file(file_name):
            with contextlib.suppress(StreamSyncError, OSError):
                return bind(ctypes.CDLL(directory.descriptor_path(file_name)), origin), origin
        return _compile_and_load(library, compiler, directory, file_name, lambda loaded: bind(loaded, origin)), origin


@contextlib.contextmanager
def _build_lock(directory: PrivateDirectory, file_name: str) -> Iterator[None]:
    """Lets one process compile while others wait; the kernel drops the lock of a killed one.

    Without flock (some network file systems), or when a holder takes too long, it goes on: the rename at the end of a
    build keeps the result whole, the lock only saves work.
    """
    descriptor = directory.open_file(file_name + ".lock", os.O_RDWR | os.O_CREAT)
    try:
        give_up_at = time.monotonic() + COMPILE_LIMIT_SECONDS
        while time.monotonic() < give_up_at:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_LOCK_POLL_SECONDS)
            except OSError as error:
                log.debug("building without a lock directory=%s reason=%s", directory.path, error)
                break
        yield
    finally:
        os.close(descriptor)


def _compile_and_load(
    library: NativeLibrary,
    compiler: Compiler,
    directory: PrivateDirectory,
    file_name: str,
    bind: Callable[[ctypes.CDLL], ctypes.CDLL],
) -> ctypes.CDLL:
    """Compiles into a temporary file of the same directory, loads that, then renames it.

    So the name never shows half a library or one that does not load; and the loader, which takes two files of one
    name for the same, never returns an unsound one that had the name before.
    """
    temporary = f".{file_name}.{os.getpid()}.{secrets.token_hex(6)}"
    source, *_ = library.input_paths()
    command = [
        *compiler.command,
        *_COMPILE_FLAGS,
        f"-Wl,--version-script={source.parent / library.symbol_map}",
        f"-Wl,-soname,{library.file_name}",
        "-o",
        temporary,
        str(source),
    ]
    try:
        _run_compiler(library, command, directory)
        if not directory.is_own_file(temporary):
            raise UnusableDirectoryError(f"{directory.path}: the compiler's output did not arrive there")
        try:
            loaded = ctypes.CDLL(directory.descriptor_path(temporary))
        except OSError as error:
            raise UnusableDirectoryError(f"{directory.path}: the library does not load from there: {error}") from error
        bind(loaded)
        directory.rename(temporary, file_name)
        return loaded
    finally:
        directory.remove(temporary)


def _run_compiler(library: NativeLibrary, command: list[str], directory: PrivateDirectory) -> None:
    """Runs it inside the directory, which also takes its temporary files: /tmp may be read-only or full."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=directory.descriptor_path(""),
            env={**os.environ, "TMPDIR": "."},
            umask=0o077,
            start_new_session=True,
        )
    except OSError as error:
        raise StreamSyncError(
            f"{library.file_name} cannot be built: {command[0]} does not start ({error.strerror}); "
            "set CC to a C compiler that does"
        ) from error
    try:
        output, _ = process.communicate(timeout=COMPILE_LIMIT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise StreamSyncError(
            f"{library.file_name} cannot be built: {command[0]} took over {COMPILE_LIMIT_SECONDS} s"
        ) from error
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode == 0:
        return
    text = output.decode(errors="replace").strip()
    if directory.is_full():
        raise UnusableDirectoryError(f"{directory.path}: no space for the library")
    raise StreamSyncError(
        f"{library.file_name} cannot be built: {command[0]} ended with {process.returncode}: {text[-600:]}"
    )
