"""A container's cgroup as the node sees it: its cpuset, and the tightest quota from it up to the root.

Containers are found by id below their pod's folder, not by format strings alone: drivers (systemd, cgroupfs),
versions (v1, v2, hybrid) and runtimes (containerd, CRI-O, docker) all name and nest them differently, kind
nests everything below the node's own cgroup, and crun adds a child.

1. The hierarchies: the unified one, or the v1 ones of `cpu` and `cpuset`.
2. In each, the folders that the kubelet keeps all pods in (`kubepods…`), at most MOST_DEPTH below its top.
3. In those and their QoS folders, the pod's folder: its name holds the UID, with `-` or `_`.
4. Below it the container's folder: its name ends in the container's id.
5. Where that leads nowhere: any folder of the hierarchy whose name ends in the id, looked for once per id.

Source: pkg/kubelet/cm/cgroup_manager_linux.go and pod_container_manager_linux.go of Kubernetes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..model.source import Source
from .cgroup import LevelLimit, granted_at, limit_at
from .root import HostRoot, names_in, read_text

MOST_DEPTH = 6
"""Levels searched for the kubelet's folders; /docker/ID/kubelet.slice/kubelet-kubepods.slice of kind is four."""

MOST_FOLDERS = 20_000
"""Folders looked at in one search, so that no cgroup tree stops the agent; a full node has a few thousand."""

EFFECTIVE_CPUSETS = ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus")
"""Files with the CPUs that a cgroup really has: of v2, of v1, and of v1 kernels that have only the plain list."""

MOST_REMEMBERED = 4_096
"""Container ids whose folders, or whose absence, are remembered."""


@dataclass(frozen=True, slots=True)
class ContainerCgroup:
    """What a container's cgroup and its ancestors grant.

    Attributes:
        folder: the container's cgroup in the hierarchy of the cpu controller.
        cpuset: CPUs it may run on, None where no file tells.
        cpuset_file: the file that tells.
        quota: the tightest CPU limit of all levels in CPUs, None without a limit.
        quota_folder: the cgroup that sets it.
        quota_sources: the files of that cgroup; without a limit, those of the lowest that has some.
    """

    folder: Path
    cpuset: frozenset[int] | None
    cpuset_file: Path | None
    quota: float | None
    quota_folder: Path | None
    quota_sources: tuple[Source, ...]


class PodCgroups:
    """Finds containers' cgroups below one cgroupfs root; remembers where it found what."""

    def __init__(self, root: HostRoot) -> None:
        self._root = root.cgroup
        self._kubelet_folders: dict[Path, tuple[Path, ...]] = {}
        self._not_found: set[str] = set()
        self._found: dict[tuple[Path, str], tuple[Path, ...]] = {}

    def read(self, pod_uid: str, container_id: str) -> ContainerCgroup | None:
        """What the container's cgroup grants now; None where it is not found or not set up yet.

        A runtime makes the folder first, with an empty cpuset and no quota, and fills it in a moment later.
        """
        if not container_id or "/" in container_id:
            return None
        cpu_levels = self._levels(_hierarchy(self._root, "cpu"), pod_uid, container_id)
        if not cpu_levels:
            return None
        cpuset_levels = self._levels(_hierarchy(self._root, "cpuset"), pod_uid, container_id)
        if cpuset_levels and _has_empty_cpuset(cpuset_levels[0]):
            return None
        cpuset_file, cpuset = _nearest_cpuset(cpuset_levels)
        limit, quota_folder = _tightest_limit(cpu_levels)
        return ContainerCgroup(cpu_levels[0], cpuset, cpuset_file, limit.quota, quota_folder, limit.sources)

    def _levels(self, top: Path, pod_uid: str, container_id: str) -> tuple[Path, ...]:
        """The container's folder and those above it up to `top`; empty where it is not found."""
        known = self._found.get((top, container_id))
        if known is not None and known[0].is_dir():
            return known
        folder = self._search(top, pod_uid, container_id)
        if folder is None:
            return ()
        if len(self._found) >= MOST_REMEMBERED:
            self._found.clear()
        levels = (folder, *(parent for parent in folder.parents if parent.is_relative_to(top)))
        self._found[top, container_id] = levels
        return levels

    def _search(self, top: Path, pod_uid: str, container_id: str) -> Path | None:
        for is_fresh in (False, True):
            if is_fresh or top not in self._kubelet_folders:
                self._kubelet_folders[top] = tuple(_kubelet_folders(top))
            for kubelet_folder in self._kubelet_folders[top]:
                found = _container_folder(kubelet_folder, pod_uid, container_id)
                if found is not None:
                    return found
        return self._find_anywhere(top, container_id)

    def _find_anywhere(self, top: Path, container_id: str) -> Path | None:
        if container_id in self._not_found:
            return None
        for folder in _folders_below(top, MOST_DEPTH):
            if _is_of_container(folder.name, container_id):
                return folder
        if len(self._not_found) >= MOST_REMEMBERED:
            self._not_found.clear()
        self._not_found.add(container_id)
        return None


def _hierarchy(root: Path, controller: str) -> Path:
    """The top folder of a controller: v1's where there is one, else the unified hierarchy."""
    if (root / "cgroup.controllers").exists():
        return root
    for name in names_in(root):
        if controller in name.split(","):
            return root / name
    unified = root / "unified"
    return unified if (unified / "cgroup.controllers").exists() else root


def _kubelet_folders(top: Path) -> Iterator[Path]:
    """The folders named kubepods, kubepods.slice or PARENT-kubepods.slice that lie highest."""
    found: list[Path] = []
    for folder in _folders_below(top, MOST_DEPTH):
        if folder.name.removesuffix(".slice").rpartition("-")[2] != "kubepods":
            continue
        if not any(folder.is_relative_to(other) for other in found):
            found.append(folder)
            yield folder


def _container_folder(kubelet_folder: Path, pod_uid: str, container_id: str) -> Path | None:
    uids = {f"pod{pod_uid}", f"pod{pod_uid.replace('-', '_')}"}
    levels = [kubelet_folder]
    levels += [folder for folder in _subfolders(kubelet_folder) if _is_qos(folder.name)]
    for level in levels:
        for pod_folder in _subfolders(level):
            if any(uid in pod_folder.name for uid in uids):
                for folder in _folders_below(pod_folder, 2):
                    if _is_of_container(folder.name, container_id):
                        return folder
    return None


def _is_qos(name: str) -> bool:
    return name.removesuffix(".slice").rpartition("-")[2] in ("burstable", "besteffort")


def _is_of_container(name: str, container_id: str) -> bool:
    """Whether a folder is the container's own: its id alone or after a prefix; conmon's are its monitor's."""
    stem = name.removesuffix(".scope")
    return stem.endswith(container_id) and stem[: -len(container_id)][-1:] in ("", "-", ":") and "conmon" not in stem


def _tightest_limit(levels: Sequence[Path]) -> tuple[LevelLimit, Path | None]:
    """The lowest limit of the container's child (crun makes one), itself and everything above it, and its cgroup."""
    limits = [(limit_at(level), level) for level in (levels[0] / "container", *levels)]
    tightest, folder = min(limits, key=lambda limit: math.inf if limit[0].quota is None else limit[0].quota)
    if tightest.quota is not None:
        return tightest, folder
    return next((limit for limit, _ in limits if limit.sources), tightest), None


def _nearest_cpuset(levels: Sequence[Path]) -> tuple[Path | None, frozenset[int] | None]:
    """The CPUs of the nearest level that tells: where the controller is not handed down, an ancestor's hold."""
    return next((granted for level in levels if (granted := granted_at(level))), (None, None))


def _has_empty_cpuset(folder: Path) -> bool:
    """Whether the cgroup's own cpuset, as far as it has one, grants no CPU: then nothing can run in it yet."""
    texts = (read_text(folder / name) for name in EFFECTIVE_CPUSETS)
    return next((text == "" for text in texts if text is not None), False)


def _folders_below(top: Path, most_depth: int) -> Iterator[Path]:
    """The folders below `top`, level by level, without following links."""
    level, seen = [top], 0
    for _ in range(most_depth):
        deeper: list[Path] = []
        for folder in level:
            for child in _subfolders(folder):
                seen += 1
                if seen > MOST_FOLDERS:
                    return
                yield child
                deeper.append(child)
        level = deeper


def _subfolders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
    return [folder / name for name in names]
