"""The side that answers: in a thread of this process, or in a process of its own."""

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any, Final, Protocol

from hostflag_native.bench.contestants import Contestant, Ports, contestants
from hostflag_native.bench.mechanism import Slice
from hostflag_native.bench.python_mechanisms import Channel, Event
from hostflag_native.exchange import ExchangeFailedError, PinnedThread
from hostflag_native.library import load_hostflag
from hostflag_native.shared_page import SharedPage
from hostflag_native.timer_slack import set_timer_slack

START_SECONDS: Final = 60.0
"""How long a new process may take until it can answer, in s: a new interpreter on a busy machine."""


class Peer(Protocol):
    """Whoever answers one slice at a time."""

    def contestants(self) -> tuple[Contestant, ...]:
        """All contestants, as this process has them."""

    def start(self, index: int, part: Slice) -> None:
        """Starts answering for the contestant of that index.

        Raises:
            ExchangeFailedError: it died.
        """

    def answer(self, limit_seconds: float) -> list[int]:
        """What its side returned.

        Raises:
            ExchangeFailedError: it did not end within the limit, or died.
        """


class ThreadPeer:
    """Answers in a new thread for each slice."""

    def __init__(self, ports: Ports, cpu: int) -> None:
        self._contestants = contestants(ports)
        self._cpu = cpu
        self._thread: PinnedThread[list[int]] | None = None

    def contestants(self) -> tuple[Contestant, ...]:
        """All contestants."""
        return self._contestants

    def start(self, index: int, part: Slice) -> None:
        """Starts the thread."""
        mechanism = self._contestants[index].mechanism

        def work() -> list[int]:
            set_timer_slack()
            return mechanism.pong(part)

        self._thread = PinnedThread(self._cpu, work)

    def answer(self, limit_seconds: float) -> list[int]:
        """Waits for the thread."""
        if self._thread is None:
            raise ExchangeFailedError("no slice was started")
        return self._thread.result(limit_seconds)


class ProcessPeer:
    """Answers in one process, which lasts for all slices."""

    def __init__(self, ports: Ports, control: "Connection[Any, Any]", process_id: int) -> None:
        self._contestants = contestants(ports)
        self._control = control
        self.process_id = process_id

    def contestants(self) -> tuple[Contestant, ...]:
        """All contestants, as this process has them."""
        return self._contestants

    def start(self, index: int, part: Slice) -> None:
        """Sends it the slice."""
        try:
            self._control.send((index, part))
        except OSError as error:
            raise ExchangeFailedError("the second process died") from error

    def answer(self, limit_seconds: float) -> list[int]:
        """Waits for its message."""
        if not self._control.poll(limit_seconds):
            raise ExchangeFailedError(f"the second process did not end a slice within {limit_seconds:g} s")
        try:
            seen: list[int] = self._control.recv()
        except (EOFError, OSError) as error:
            raise ExchangeFailedError("the second process died") from error
        return seen


class PassedDescriptor:
    """A descriptor that a process started by multiprocessing gets a copy of."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        return _received_descriptor, (reduction.DupFd(self.number),)


def _received_descriptor(passed: Any) -> PassedDescriptor:
    return PassedDescriptor(passed.detach())


@dataclass(frozen=True, slots=True)
class Wires:
    """What the second process needs to have the same ports: page, eventfds, pipes, events, channels."""

    page: PassedDescriptor
    descriptors: tuple[PassedDescriptor, ...]
    events: tuple[Event, Event]
    channels: tuple[Channel, Channel]
    lib_path: str

    def ports(self, page: SharedPage) -> Ports:
        """The ports, as this process has them."""
        numbers = [descriptor.number for descriptor in self.descriptors]
        return Ports(
            library=load_hostflag(self.lib_path)[0],
            lib_path=self.lib_path,
            address=page.address,
            eventfds=(numbers[0], numbers[1]),
            pipes=(numbers[2], numbers[3], numbers[4], numbers[5]),
            events=self.events,
            channels=self.channels,
        )


@contextlib.contextmanager
def thread_peer(library: Any, lib_path: str, cpu: int) -> Iterator[ThreadPeer]:
    """A peer in this process; its page and descriptors last as long as the block."""
    with _page_and_descriptors() as (page, numbers):
        eventfds, pipes = (numbers[0], numbers[1]), (numbers[2], numbers[3], numbers[4], numbers[5])
        events = (threading.Event(), threading.Event())
        yield ThreadPeer(Ports(library, lib_path, page.address, eventfds, pipes, events, None), cpu)


@contextlib.contextmanager
def process_peer(lib_path: str, cpu: int) -> Iterator[ProcessPeer]:
    """A peer in a process of its own, which ends with the block.

    Raises:
        ExchangeFailedError: it did not come up.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    channels = context.Pipe()
    with _page_and_descriptors() as (page, numbers):
        wires = Wires(
            page=PassedDescriptor(page.descriptor),
            descriptors=tuple(PassedDescriptor(number) for number in numbers),
            events=(context.Event(), context.Event()),
            channels=channels,
            lib_path=lib_path,
        )
        process = context.Process(target=serve, args=(wires, theirs, cpu), name="hostflag-bench-peer", daemon=True)
        process.start()
        theirs.close()
        peer = ProcessPeer(wires.ports(page), ours, process.pid or 0)
        try:
            peer.answer(START_SECONDS)
            yield peer
        finally:
            process.kill()
            process.join()
            process.close()
            for connection in (ours, *channels):
                connection.close()


def serve(wires: Wires, control: "Connection[Any, Any]", cpu: int) -> None:
    """The second process's whole life: says that it is there, then answers slices until it is killed."""
    os.sched_setaffinity(0, {cpu})
    set_timer_slack()
    page = SharedPage(wires.page.number)
    mine = contestants(wires.ports(page))
    control.send([])
    with contextlib.suppress(EOFError, OSError):  # the other process is gone
        while True:
            index, part = control.recv()
            control.send(mine[index].mechanism.pong(part))


@contextlib.contextmanager
def _page_and_descriptors() -> Iterator[tuple[SharedPage, tuple[int, ...]]]:
    """A page, two eventfds and two pipes, in the order of Ports.

    After an error they stay until this process ends: a side that did not answer in time may still use them.
    """
    page = SharedPage()
    numbers = (os.eventfd(0), os.eventfd(0), *os.pipe(), *os.pipe())
    yield page, numbers
    for number in numbers:
        os.close(number)
    page.close()
