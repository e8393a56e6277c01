"""Notices that a process has ended, however it ended, through its pidfd."""

import errno
import os
import select
import threading
from collections.abc import Callable

from hostflag_native.errors import StreamSyncError
from hostflag_native.process_generation import process_generation


def watch_process_end(pid: int, on_end: Callable[[], object]) -> "ProcessWatch | None":
    """Calls on_end once, from a thread of its own, when process pid ends; at once if it is gone already.

    The thread is a Python thread: it needs the GIL to call on_end, so nobody may hold the GIL while parked.

    Returns:
        The watch; None if the process is gone.

    Raises:
        StreamSyncError: pid is no process, the kernel gives no pidfd (before Linux 5.3, or a seccomp filter), or
            descriptors or threads have run out; nothing is left open.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        on_end()
        return None
    except OSError as error:
        raise StreamSyncError(f"cannot watch process {pid}: {_reason(error)}") from error
    try:
        return ProcessWatch(pidfd, on_end, name=f"hostflag-watch-{pid}")
    except (OSError, RuntimeError) as error:
        os.close(pidfd)
        raise StreamSyncError(
            f"cannot watch process {pid}: {error}; raise the limit on open files or on the pod's pids"
        ) from error


def _reason(error: OSError) -> str:
    if error.errno in (errno.EINVAL, errno.ENOENT):  # the second on newer kernels
        return "expected the id of a process, not of one of its threads"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"{error.strerror}; raise the limit on open files"
    return f"pidfd_open failed ({error.strerror}); it needs Linux 5.3 and a seccomp profile that allows it"


class ProcessWatch:
    """A thread that waits for the process to end or for cancel, whichever is first."""

    def __init__(self, pidfd: int, on_end: Callable[[], object], name: str) -> None:
        """Starts the thread, which then owns pidfd.

        Raises:
            OSError: no descriptor is left.
            RuntimeError: no thread can be started.
        """
        self._pidfd = pidfd
        self._on_end = on_end
        self._generation = process_generation()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._wake_lock = threading.Lock()
        self._is_wake_open = True
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            os.close(self._wake)
            raise

    @property
    def is_over(self) -> bool:
        """Whether the process has ended or the watch was cancelled."""
        return not self._is_wake_open

    def cancel(self) -> None:
        """Ends the watch and joins its thread; on_end is not called after that. May be called twice.

        In a forked child, which has no such thread, it does nothing.
        """
        if process_generation() != self._generation:
            return
        with self._wake_lock:
            if self._is_wake_open:
                os.eventfd_write(self._wake, 1)
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll()}
        with self._wake_lock:
            self._is_wake_open = False
            os.close(self._wake)
        os.close(self._pidfd)
        if self._wake not in ready:
            self._on_end()
