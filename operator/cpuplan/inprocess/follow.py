"""Following the published plan: every new generation is installed and applied, wiped pins are renewed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ..host.root import HostRoot
from ..host.sysfs import THIS_HOST
from .apply import NO_CPUS, Pins, ThreadPin
from .current import install
from .published import (
    INVALID,
    NO_VOLUME,
    PLAN_FOLDER,
    UNREADABLE,
    WATCH_SECONDS,
    Publication,
    PublishedPlan,
    read_published,
)
from .watching import start_watch

_SAYS_NOTHING = frozenset({NO_VOLUME, UNREADABLE, INVALID})
"""Reasons that do not withdraw a plan: a file that cannot be read, or one of a later version."""


@dataclass(frozen=True, slots=True)
class Followed:
    """What is published now, and where every thread in our care is."""

    publication: Publication
    threads: tuple[ThreadPin, ...]


def follow_plan(
    pins: Iterable[Pins] = (),
    callback: Callable[[Followed], object] | None = None,
    container: str | None = None,
    *,
    folder: Path = PLAN_FOLDER,
    root: HostRoot = THIS_HOST,
    every_seconds: float = WATCH_SECONDS,
) -> Callable[[], None]:
    """Keeps this process on its published plan.

    1. A plan, now or of a new generation, is installed, and the pins move to its CPUs.
    2. A plan that is withdrawn is uninstalled, and the threads go back to where they were.
    3. A pin that somebody wiped is renewed.
    4. After any change the callback is told, on the watch's thread.

    Returns:
        The undo: ends the following. The plan stays installed and the pins stay; each has its own undo.
    """
    return start_watch(_Follower(tuple(pins), callback, container, folder, root).look, every_seconds)


class _Follower:
    """One round of following, and what the last one saw."""

    def __init__(
        self,
        pins: tuple[Pins, ...],
        callback: Callable[[Followed], object] | None,
        container: str | None,
        folder: Path,
        root: HostRoot,
    ) -> None:
        self._pins = pins
        self._callback = callback
        self._container = container
        self._folder = folder
        self._root = root
        self._in_force: PublishedPlan | None = None
        self._told: Followed | None = None

    def look(self) -> None:
        found = read_published(self._container, folder=self._folder, root=self._root)
        if isinstance(found, PublishedPlan):
            if found != self._in_force:
                self._enforce(found)
        elif self._in_force is not None and found.reason not in _SAYS_NOTHING:
            self._withdraw()
        now = Followed(found, tuple(pin for pins in self._pins for pin in pins.repair()))
        if now != self._told:
            self._told = now
            if self._callback is not None:
                self._callback(now)

    def _enforce(self, found: PublishedPlan) -> None:
        plan = found.plan.as_cpu_plan()
        install(plan)
        for pins in self._pins:
            pins.move(pins.role.cpus_in(plan, found.plan.pool_cpus))
        self._in_force = found

    def _withdraw(self) -> None:
        install(None)
        for pins in self._pins:
            pins.move(NO_CPUS)
        self._in_force = None
