"""The plan that the node's agent publishes into the pod: read, waited for, followed.

The injected volume holds two files, `plan` (empty until there is one) and `uid`. The kubelet replaces
them by renaming a folder, so a reader opens the path anew each time and never keeps a descriptor.

Source: https://kubernetes.io/docs/concepts/workloads/pods/downward-api/ and AtomicWriter in
pkg/volume/util of Kubernetes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from ..host.affinity import visible_quota
from ..host.identity import boot_id_file, read_boot_id
from ..host.root import HostRoot, read_text
from ..host.sysfs import THIS_HOST
from ..model import reasons
from ..model.errors import CpuPlanError
from ..model.plan import usable_count
from ..model.podplan import ContainerPlan, PodPlan
from .watching import start_watch

PLAN_FOLDER = Path("/etc/cpuplan")
"""Where the volume is mounted in every planned container."""

CONTAINER_VARIABLE = "CPUPLAN_CONTAINER"
"""Names the container to its own processes; injected with the volume."""

NO_VOLUME: Final = "no-volume"
UNREADABLE: Final = "unreadable"
NOT_YET: Final = "not-yet"
INVALID: Final = "invalid-plan"
OTHER_POD: Final = "other-pod"
OTHER_BOOT: Final = "other-boot"
OTHER_CONTAINER: Final = "other-container"

FIRST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 0.25
"""Pauses between looks at the file while a start waits for it: a look costs some 30 microseconds."""

WATCH_SECONDS = 1.0
"""Pause between looks of a follower: the kubelet itself takes about a second to renew the file."""


@dataclass(frozen=True, slots=True)
class PublishedPlan:
    """A plan valid for this pod and this boot, and of it the plan of one container.

    A container that restarts with a smaller CPU limit reads the plan of the larger one, since the kubelet renews the
    file up to a minute later. So `plan` counts on no more usable CPUs than the quota that is seen here allows.
    """

    pod_plan: PodPlan
    container: str
    plan: ContainerPlan

    @property
    def as_published(self) -> ContainerPlan:
        """The container's plan as it stands in the pod's."""
        return self.pod_plan.container(self.container) or self.plan

    @property
    def generation(self) -> int:
        """Rises with every change that the agent publishes."""
        return self.pod_plan.generation


@dataclass(frozen=True, slots=True)
class NotPublished:
    """There is no plan to follow: a code of this module, and the sentence."""

    reason: str
    why: str


Publication = PublishedPlan | NotPublished


def read_pod_plan(folder: Path = PLAN_FOLDER, root: HostRoot = THIS_HOST) -> PodPlan | NotPublished:
    """The pod's plan, if it was made for this pod and this boot of the node.

    1. The volume is there and its plan is not empty.
    2. The plan is one of a version that this reader knows.
    3. It names the pod's UID (the volume's own file) and the kernel's boot id.

    A file that is there and cannot be read (this process has used up its descriptors) says nothing of the plan.
    """
    found = _plan_in(folder / "plan")
    if isinstance(found, NotPublished):
        return found
    return _why_not_ours(found, folder / "uid", root) or found


def read_published(
    container: str | None = None, *, folder: Path = PLAN_FOLDER, root: HostRoot = THIS_HOST
) -> Publication:
    """The published plan of a container, or why there is none.

    Args:
        container: its name; None: the variable CPUPLAN_CONTAINER, else the only planned container.
        folder: where the plan volume is mounted.
        root: where the kernel's boot id and this process's quota are read.
    """
    found = read_pod_plan(folder, root)
    return found if isinstance(found, NotPublished) else _choose(found, container, root)


def wait_for_plan(
    timeout_seconds: float,
    container: str | None = None,
    *,
    folder: Path = PLAN_FOLDER,
    root: HostRoot = THIS_HOST,
    now: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = time.sleep,
) -> Publication:
    """The published plan of a container as soon as there is one; after `timeout_seconds`, why there is none.

    A pod without the volume is answered at once: nothing will appear there.
    """

    def look() -> tuple[Publication, bool]:
        found = read_published(container, folder=folder, root=root)
        return found, isinstance(found, PublishedPlan) and found.plan.reason != reasons.WAITING_FOR_DEVICES

    return _wait(look, timeout_seconds, now, pause)


def wait_for_pod_plan(
    timeout_seconds: float,
    folder: Path = PLAN_FOLDER,
    root: HostRoot = THIS_HOST,
    *,
    now: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = time.sleep,
) -> PodPlan | NotPublished:
    """As wait_for_plan, for all containers of the pod: what an init container waits for."""

    def look() -> tuple[PodPlan | NotPublished, bool]:
        found = read_pod_plan(folder, root)
        return found, isinstance(found, PodPlan) and all(
            plan.reason != reasons.WAITING_FOR_DEVICES for _, plan in found.containers
        )

    return _wait(look, timeout_seconds, now, pause)


def watch_plan(
    callback: Callable[[Publication], object],
    container: str | None = None,
    *,
    folder: Path = PLAN_FOLDER,
    root: HostRoot = THIS_HOST,
    every_seconds: float = WATCH_SECONDS,
) -> Callable[[], None]:
    """Calls back with what is published now, then whenever that changes.

    It changes with a new generation of the plan, with its withdrawal, and where another CPU limit of this container
    allows more or fewer usable CPUs of the same generation.

    A look that cannot read what is there tells nothing, unless it is the first.

    The callback runs on a thread of its own; what it raises goes to threading.excepthook. A forked child
    does not inherit the watch.

    Returns:
        The undo: ends the watch.
    """
    last: Publication | None = None

    def look() -> None:
        nonlocal last
        found = read_published(container, folder=folder, root=root)
        is_blind = isinstance(found, NotPublished) and found.reason == UNREADABLE
        if found != last and not (is_blind and last is not None):
            last = found
            callback(found)

    return start_watch(look, every_seconds)


def _plan_in(file: Path) -> PodPlan | NotPublished:
    text = _read(file)
    if text is None and _is_there(file):
        return _unreadable(file)
    if text is None:
        return NotPublished(NO_VOLUME, f"{file} cannot be read: {_why_no_volume()}")
    if not text:
        why = "the pod asks for no plan (any more), or its node's agent has published none yet"
        return NotPublished(NOT_YET, f"{file} is empty: {why}")
    try:
        return PodPlan.from_json(text)
    except CpuPlanError as error:
        return NotPublished(INVALID, f"{file}: {error}")


def _why_not_ours(plan: PodPlan, uid_file: Path, root: HostRoot) -> NotPublished | None:
    """Why the plan is not for this pod and this boot; None where it is."""
    uid = _read(uid_file)
    if uid is None and _is_there(uid_file):
        return _unreadable(uid_file)
    if uid != plan.pod_uid:
        return NotPublished(OTHER_POD, f"the plan is for pod UID {plan.pod_uid}, this pod's UID is {uid or 'unknown'}")
    boot_id = read_boot_id(root)
    if not boot_id and _is_there(boot_id_file(root)):
        return _unreadable(boot_id_file(root))
    if boot_id != plan.boot_id:
        return NotPublished(
            OTHER_BOOT, f"the plan is for boot {plan.boot_id} of node {plan.node}, this boot is {boot_id or 'unknown'}"
        )
    return None


def _read(file: Path) -> str | None:
    """A file of the volume; None where it is missing or cannot be read.

    Renewing the volume, the kubelet removes the old folder, maybe while the path is being followed into it. The
    path leads to the new one by then.
    """
    text = read_text(file)
    return read_text(file) if text is None else text


def _is_there(file: Path) -> bool:
    """Whether there is such a file; this needs no descriptor."""
    return os.path.exists(file)  # noqa: PTH110 - Path.exists raises where a folder must not be looked into


def _unreadable(file: Path) -> NotPublished:
    return NotPublished(
        UNREADABLE,
        f"{file} is there and cannot be read now: this process lacks a free file descriptor, or the right to read it",
    )


def _why_no_volume() -> str:
    """What the lack of the volume can mean: it comes with the variable, into planned containers of a new pod."""
    container = os.environ.get(CONTAINER_VARIABLE)
    if container:
        return f"{CONTAINER_VARIABLE} says that container {container} is planned, but no plan volume is mounted there"
    return (
        "this container has no plan volume; either it is not the planned container of its pod "
        "(cpuplan.dev/container names one), or the pod was created without step_thread_core: create it anew with that"
    )


_Found = TypeVar("_Found", PublishedPlan | NotPublished, PodPlan | NotPublished)


def _wait(
    look: Callable[[], tuple[_Found, bool]],
    timeout_seconds: float,
    now: Callable[[], float],
    pause: Callable[[float], object],
) -> _Found:
    """What `look` finds once it is final, cannot become so, or the time is up; pauses grow in between.

    A plan that says its devices are not there yet is not final: the agent renews it within moments.
    """
    deadline = now() + timeout_seconds
    pause_seconds = FIRST_PAUSE_SECONDS
    while True:
        found, is_final = look()
        left_seconds = deadline - now()
        if is_final or left_seconds <= 0 or (isinstance(found, NotPublished) and found.reason == NO_VOLUME):
            return found
        pause(min(pause_seconds, left_seconds))
        pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)


def _choose(plan: PodPlan, container: str | None, root: HostRoot) -> Publication:
    wanted = container or os.environ.get(CONTAINER_VARIABLE)
    names = [name for name, _ in plan.containers]
    if not wanted:
        if len(names) != 1:
            return NotPublished(
                OTHER_CONTAINER,
                f"the plan is for the containers {', '.join(names) or 'none'}; set {CONTAINER_VARIABLE}",
            )
        wanted = names[0]
    found = plan.container(wanted)
    if found is None:
        return NotPublished(
            OTHER_CONTAINER, f"container {wanted} is not planned; the plan is for {', '.join(names) or 'none'}"
        )
    usable = usable_count(found.usable, visible_quota(root))
    return PublishedPlan(plan, wanted, found if usable == found.usable else replace(found, usable=usable))
