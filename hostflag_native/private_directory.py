"""Directories that only this user can write, for a library that is compiled at run time and then loaded.

Whoever can plant a file there runs code in the engine. So a directory is opened without following a symlink, owner
and mode are checked on the descriptor, and everything after goes through that descriptor.
"""

import atexit
import contextlib
import functools
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class UnusableDirectoryError(Exception):
    """This directory cannot serve; another may. The text starts with its path."""


@dataclass(frozen=True, slots=True)
class PrivateDirectory:
    """A checked directory, open."""

    path: Path
    descriptor: int

    def descriptor_path(self, name: str) -> str:
        """A path to the file that goes through the checked descriptor, whatever the directory's name means now."""
        through = f"/proc/self/fd/{self.descriptor}/{name}"
        return through if os.access(through, os.F_OK) else str(self.path / name)

    def open_file(self, name: str, flags: int) -> int:
        """Opens a file of the directory, never through a symlink.

        Raises:
            UnusableDirectoryError: it cannot be opened, or is not this user's.
        """
        try:
            descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self.descriptor)
        except OSError as error:
            raise UnusableDirectoryError(f"{self.path}: {name}: {error.strerror}") from error
        if not _is_own_and_closed_to_others(os.fstat(descriptor)):
            os.close(descriptor)
            raise UnusableDirectoryError(f"{self.path}: {name} belongs to, or can be written by, another user")
        return descriptor

    def is_own_file(self, name: str) -> bool:
        """True if the name is a regular file of this user that nobody else can write; never follows a symlink."""
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            descriptor = os.open(name, flags, dir_fd=self.descriptor)
        except OSError:
            return False
        try:
            status = os.fstat(descriptor)
            return stat.S_ISREG(status.st_mode) and _is_own_and_closed_to_others(status)
        finally:
            os.close(descriptor)

    def rename(self, name: str, new_name: str) -> None:
        """Gives a file of the directory another name, replacing what has it."""
        try:
            os.rename(name, new_name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        except OSError as error:
            raise UnusableDirectoryError(f"{self.path}: {new_name}: {error.strerror}") from error

    def remove(self, name: str) -> None:
        """Removes a file of the directory if it is there."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self.descriptor)

    def is_full(self) -> bool:
        """True if the file system has no room for a library (64 KiB)."""
        room = os.fstatvfs(self.descriptor)
        return room.f_bavail * room.f_frsize < 64 * 1024


@dataclass(frozen=True, slots=True)
class DirectoryCandidate:
    """A directory that may serve: made if missing, then checked."""

    path: Path

    @contextlib.contextmanager
    def open(self) -> Iterator[PrivateDirectory]:
        """Opens and checks it.

        Raises:
            UnusableDirectoryError: it cannot be made, opened or written, is a symlink, or others can write it.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise UnusableDirectoryError(f"{self.path}: {error.strerror}") from error
        try:
            status = os.fstat(descriptor)
            if status.st_uid != os.geteuid():
                raise UnusableDirectoryError(
                    f"{self.path}: belongs to uid {status.st_uid}, expected this process's {os.geteuid()}"
                )
            if status.st_mode & _WRITABLE_BY_OTHERS:
                raise UnusableDirectoryError(
                    f"{self.path}: group or others write it (mode {stat.S_IMODE(status.st_mode):04o}), make it 0700"
                )
            if os.fstatvfs(descriptor).f_flag & os.ST_NOEXEC:
                raise UnusableDirectoryError(f"{self.path}: mounted noexec, so no library loads from there")
            yield PrivateDirectory(self.path, descriptor)
        finally:
            os.close(descriptor)


def candidate_directories() -> Iterator[DirectoryCandidate]:
    """$HOSTFLAG_BUILD_DIR, the XDG cache, a per-user directory in the temporary one, a new private one there.

    Neither a home directory nor a passwd entry is needed: nothing is looked up by user name.
    """
    asked = os.environ.get("HOSTFLAG_BUILD_DIR", "")
    if asked:
        yield DirectoryCandidate(Path(asked).absolute())
    cache = os.environ.get("XDG_CACHE_HOME", "")
    home = os.environ.get("HOME", "")
    if cache.startswith("/"):
        yield DirectoryCandidate(Path(cache) / "hostflag_native")
    elif home.startswith("/"):
        yield DirectoryCandidate(Path(home) / ".cache" / "hostflag_native")
    try:
        temporary = Path(tempfile.gettempdir())
    except FileNotFoundError:
        return
    yield DirectoryCandidate(temporary / f"hostflag_native-{os.geteuid()}")
    with contextlib.suppress(OSError):
        yield DirectoryCandidate(_directory_of_this_process(os.getpid()))


@functools.cache
def _directory_of_this_process(pid: int) -> Path:
    """A new private directory, made once for process pid and removed when it exits."""
    directory = Path(tempfile.mkdtemp(prefix="hostflag_native-"))

    def remove() -> None:
        if os.getpid() == pid:
            shutil.rmtree(directory, ignore_errors=True)

    atexit.register(remove)
    return directory


def _is_own_and_closed_to_others(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & _WRITABLE_BY_OTHERS
