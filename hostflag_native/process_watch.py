"""Notices that a process has ended, however it ended, through its pidfd."""

import os
import select
import threading
from collections.abc import Callable

from hostflag_native.errors import StreamSyncError
from hostflag_native.process_generation import process_generation


def watch_process_end(pid: int, on_end: Callable[[], object]) -> Callable[[], None]:
    """Calls on_end once, from a thread of its own, when process pid ends; at once if it is gone already.

    The thread is a Python thread: it needs the GIL to call on_end, so nobody may hold the GIL while parked.

    Returns:
        An undo: the watch ends and its thread is joined; on_end is not called after that. May be called twice.

    Raises:
        StreamSyncError: the kernel gives no pidfd (before Linux 5.3, or a seccomp filter).
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        on_end()
        return lambda: None
    except OSError as error:
        raise StreamSyncError(
            f"cannot watch process {pid}: pidfd_open failed ({error.strerror}); "
            "it needs Linux 5.3 and a seccomp profile that allows it"
        ) from error
    return _ProcessWatch(pidfd, on_end, name=f"hostflag-watch-{pid}").cancel


class _ProcessWatch:
    """A thread that waits for the process to end or for cancel, whichever is first."""

    def __init__(self, pidfd: int, on_end: Callable[[], object], name: str) -> None:
        self._pidfd = pidfd
        self._on_end = on_end
        self._generation = process_generation()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._wake_lock = threading.Lock()
        self._is_wake_open = True
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Ends the watch; in a forked child, which has no such thread, does nothing."""
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
