"""One server per GPU, on a host without the node agent: a lock file per PCI address.

The locks are flock(2) locks on `/tmp/mstar-gpu-<address>.lock`, a convention that other engines share. They
end with the process, however it ends; the files stay, since unlinking one would let two servers lock two
files of one name.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from ..model.topology import normalise_address
from .forklock import fork_safe_lock

LOCK_FOLDER = Path("/tmp")  # noqa: S108 - shared by every server of the host on purpose, unlike TMPDIR
_MODE = 0o644
_OPEN_TRIES = 5
"""Tries to lock a file that somebody removes at the same moment."""

_held: dict[str, int] = {}
_serial = fork_safe_lock()


def claim_gpus(addresses: Iterable[str | None], *, folder: Path = LOCK_FOLDER) -> str | None:
    """None once this process holds every named GPU, else why it does not and then takes none of them.

    Empty and None addresses are ignored; a GPU that this process already holds counts as claimed.
    Addresses are locked in order, so that two servers neither wait for each other nor split a set.

    Raises:
        TypeError: `addresses` is one text, not several.
    """
    if isinstance(addresses, str):
        raise TypeError(f"addresses is the text {addresses!r}: expected several, as in [{addresses!r}]")
    wanted = sorted({normalise_address(address) for address in addresses if address})
    with _serial:
        taken: dict[str, int] = {}
        for address in wanted:
            if address in _held:
                continue
            try:
                taken[address] = _lock(folder, address)
            except BlockingIOError:
                _release(taken)
                return f"GPU {address} is claimed by another server on this host ({_lock_file(folder, address)})"
            except (OSError, ValueError) as error:
                _release(taken)
                what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                return f"GPU {address} cannot be claimed: {_lock_file(folder, address)}: {what}"
        _held.update(taken)
        return None


def _lock_file(folder: Path, address: str) -> Path:
    return folder / f"mstar-gpu-{address}.lock"


def _lock(folder: Path, address: str) -> int:
    """The descriptor that holds the lock.

    Raises:
        BlockingIOError: another process holds it.
        OSError, ValueError: the file cannot be used.
    """
    if "/" in address:
        raise ValueError("not a PCI address")
    path = _lock_file(folder, address)
    for _ in range(_OPEN_TRIES):
        try:
            descriptor = _open(path)
        except FileNotFoundError:
            if not folder.is_dir():
                raise
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(path, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise OSError("the file is removed again and again")


def _open(path: Path) -> int:
    """A descriptor of the lock file, created where it is missing.

    O_CREAT on a file of another user in a sticky folder is refused (fs.protected_regular), so an existing
    file is opened for reading, which is all that flock needs; the mode lets every other user do the same.
    """
    shared = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor, is_new = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | shared, _MODE), True
    except FileExistsError:
        descriptor, is_new = os.open(path, os.O_RDONLY | shared), False
    try:
        if is_new:
            os.fchmod(descriptor, _MODE)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("not a regular file")
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether the path still names the locked file: a cleaner of /tmp may have removed it in between."""
    try:
        there = path.lstat()
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def _release(taken: dict[str, int]) -> None:
    for descriptor in taken.values():
        os.close(descriptor)
