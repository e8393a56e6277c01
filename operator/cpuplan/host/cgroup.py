"""The CPU quota and the cpuset of a process, from its cgroup and every ancestor that can be seen.

Source: cgroups(7), Documentation/admin-guide/cgroup-v2.rst and .../cgroup-v1/cpusets.rst of the Linux kernel,
proc_pid_mountinfo(5).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ..model.source import Source
from .root import HostRoot, read_text
from .sysfs import read_cpu_list

CGROUP_ROOT = Path("/sys/fs/cgroup")
DEFAULT_PERIOD_US = 100_000
"""The kernel's CPU bandwidth period, where `cpu.max` names none (cgroup-v2.rst, "CPU Interface Files")."""

# The kernel's own numbers are 64 bits wide (20 digits); anything longer is no number of a kernel.
_MICROSECONDS = re.compile(r"-?[0-9]{1,20}", re.ASCII)

_CONVENTIONAL_V1 = ("cpu,cpuacct", "cpuacct,cpu", "cpu", "")
"""Folders below /sys/fs/cgroup that hold the v1 CPU controller where no mount table says which."""


@dataclass(frozen=True, slots=True)
class CpuLimit:
    """A CPU limit and the folder of the cgroup that sets it; both None where there is none."""

    quota: float | None
    folder: Path | None


def own_mountinfo(root: HostRoot) -> Path | None:
    """The mountinfo of this process, or of the one that a copied tree describes; None where the copy lacks it."""
    file = root.proc / "self" / "mountinfo"
    return file if file.exists() else None


def cgroup_cpu_quota(
    root: Path = CGROUP_ROOT,
    proc_cgroup: Path | str = "/proc/self/cgroup",
    *,
    mountinfo: Path | str | None = None,
) -> float | None:
    """CPUs of the tightest limit on the process's cgroup and all its visible ancestors; None without one.

    Args:
        root: where cgroupfs is mounted, or a folder that stands for it (`…/sys/fs/cgroup` of a copied tree).
        proc_cgroup: the process's /proc/PID/cgroup.
        mountinfo: its /proc/PID/mountinfo; None: this process's for the real root, and the conventional
            layout below any other.
    """
    return cgroup_cpu_limit(root, proc_cgroup, mountinfo=mountinfo).quota


def cgroup_cpu_limit(
    root: Path = CGROUP_ROOT,
    proc_cgroup: Path | str = "/proc/self/cgroup",
    *,
    mountinfo: Path | str | None = None,
) -> CpuLimit:
    """As cgroup_cpu_quota, with the cgroup that sets the limit."""
    tightest = CpuLimit(None, None)
    for folder in _Process(root, proc_cgroup, mountinfo).levels("cpu"):
        quota = limit_at(folder).quota
        if quota is not None and (tightest.quota is None or quota < tightest.quota):
            tightest = CpuLimit(quota, folder)
    return tightest


def cgroup_cpuset(
    root: Path = CGROUP_ROOT,
    proc_cgroup: Path | str = "/proc/self/cgroup",
    *,
    mountinfo: Path | str | None = None,
) -> frozenset[int] | None:
    """The CPUs that the process's cpuset allows, of the nearest level that tells; None where none does."""
    for folder in _Process(root, proc_cgroup, mountinfo).levels("cpuset"):
        granted = granted_at(folder)
        if granted is not None:
            return granted[1]
    return None


def cpu_limit_sources(
    root: Path = CGROUP_ROOT,
    proc_cgroup: Path | str = "/proc/self/cgroup",
    *,
    mountinfo: Path | str | None = None,
) -> tuple[Source, ...]:
    """The files that cgroup_cpu_limit reads, as they stand: the process's cgroup first, then its ancestors."""
    levels = _Process(root, proc_cgroup, mountinfo).levels("cpu")
    return tuple(source for folder in levels for source in limit_at(folder).sources)


def cpuset_source(
    root: Path = CGROUP_ROOT,
    proc_cgroup: Path | str = "/proc/self/cgroup",
    *,
    mountinfo: Path | str | None = None,
) -> Source | None:
    """The file that tells cgroup_cpuset, as it stands; None where none does."""
    for folder in _Process(root, proc_cgroup, mountinfo).levels("cpuset"):
        granted = granted_at(folder)
        if granted is not None:
            return Source(str(granted[0]), read_text(granted[0]))
    return None


@dataclass(frozen=True, slots=True)
class LevelLimit:
    """The CPU limit that one cgroup sets, in CPUs, and the files that say so.

    Attributes:
        quota: None where it sets none, or its files are malformed.
        sources: the files that are there, by their paths, and what stands in them.
    """

    quota: float | None
    sources: tuple[Source, ...]


def limit_at(folder: Path) -> LevelLimit:
    """The CPU limit that one cgroup sets."""
    text = read_text(folder / "cpu.max")
    if text is not None:
        fields = text.split()
        is_sound = len(fields) in (1, 2)
        quota = _ratio(fields[0], fields[1] if len(fields) == 2 else str(DEFAULT_PERIOD_US)) if is_sound else None
        return LevelLimit(quota, (Source(f"{folder}/cpu.max", text),))
    texts = {name: read_text(folder / name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")}
    sources = tuple(Source(f"{folder}/{name}", text) for name, text in texts.items() if text is not None)
    limit, period = texts.values()
    return LevelLimit(None if limit is None or period is None else _ratio(limit, period), sources)


def granted_at(folder: Path) -> tuple[Path, frozenset[int]] | None:
    """The CPUs that one cgroup's cpuset grants, the effective ones first, and the file; None where it has none."""
    for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus", "cpus"):
        cpus = read_cpu_list(folder / name)
        if cpus:
            return folder / name, cpus
    return None


def _ratio(quota: str, period: str) -> float | None:
    if not _MICROSECONDS.fullmatch(quota) or not _MICROSECONDS.fullmatch(period):
        return None
    quota_us, period_us = int(quota), int(period)
    return quota_us / period_us if quota_us > 0 and period_us > 0 else None


@dataclass(frozen=True, slots=True)
class _Mount:
    """One cgroup mount: the cgroup at its top, where it is mounted, and its v1 controllers (None: v2)."""

    top: str
    point: str
    controllers: frozenset[str] | None


class _Process:
    """A process's cgroups and the mounts through which they can be seen."""

    def __init__(self, root: Path | str, proc_cgroup: Path | str, mountinfo: Path | str | None) -> None:
        self._root = Path(root)
        self._paths = _parse_memberships(read_text(proc_cgroup) or "")
        if mountinfo is None and self._root == CGROUP_ROOT:
            mountinfo = "/proc/self/mountinfo"
        table = None if mountinfo is None else read_text(mountinfo)
        self._mounts = None if table is None else _visible_mounts(table)

    def levels(self, controller: str) -> Iterator[Path]:
        """The folders of the process's cgroup and its ancestors, the cgroup itself first."""
        v1_path, v2_path = self._paths.get(controller), self._paths.get("")
        if self._mounts is None:
            yield from self._conventional_levels(controller, v1_path, v2_path)
            return
        v1 = [m for m in self._mounts if m.controllers is not None and controller in m.controllers]
        if v1:
            yield from self._levels_below(v1, v1_path)
            return
        yield from self._levels_below([m for m in self._mounts if m.controllers is None], v2_path)

    def _levels_below(self, mounts: list[_Mount], path: str | None) -> Iterator[Path]:
        """The levels in every mount that shows the path; the first mount's top alone where none shows it.

        Two mounts can start at different cgroups, and then one shows ancestors that the other does not.
        """
        ordered = sorted(mounts, key=lambda mount: not PurePosixPath(mount.point).is_relative_to(CGROUP_ROOT))
        shown = [(mount, below) for mount in ordered if (below := _below(path, mount.top)) is not None]
        for mount, below in shown:
            yield from _chain(self._locate(mount.point), below)
        if ordered and not shown:
            yield self._locate(ordered[0].point)

    def _conventional_levels(self, controller: str, v1_path: str | None, v2_path: str | None) -> Iterator[Path]:
        """The levels below a root without a mount table: v1 where its folder is there, else unified."""
        folders = _CONVENTIONAL_V1 if controller == "cpu" else (controller, "")
        file = "cpu.cfs_quota_us" if controller == "cpu" else "cpuset.cpus"
        for name in folders if v1_path is not None or v2_path is None else ():
            base = self._root / name
            chain = list(_chain(base, v1_path or "/"))
            if any((folder / file).exists() for folder in chain):
                yield from chain
                return
        yield from _chain(self._root, v2_path or "/")

    def _locate(self, mount_point: str) -> Path:
        """Where a mount point is, when the root is a copied tree's."""
        if self._root == CGROUP_ROOT:
            return Path(mount_point)
        if (self._root / "sys" / "fs" / "cgroup").is_dir():
            return self._root / mount_point.lstrip("/")
        if self._root.parts[-3:] == ("sys", "fs", "cgroup"):
            return self._root.parents[2] / mount_point.lstrip("/")
        point = PurePosixPath(mount_point)
        return self._root / (point.relative_to(CGROUP_ROOT) if point.is_relative_to(CGROUP_ROOT) else point.name)


def _parse_memberships(text: str) -> dict[str, str]:
    """The process's path per v1 controller, and under the empty name its v2 path; paths may hold colons."""
    paths: dict[str, str] = {}
    for line in text.splitlines():
        fields = line.split(":", 2)
        if len(fields) == 3 and fields[2].startswith("/"):
            for controller in fields[1].split(","):
                paths.setdefault(controller, fields[2])
    return paths


def _visible_mounts(table: str) -> tuple[_Mount, ...]:
    """The cgroup mounts of a mount table; of several at one point the last, which covers the others."""
    return tuple({mount.point: mount for mount in _parse_mounts(table)}.values())


def _parse_mounts(text: str) -> Iterator[_Mount]:
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if not separator or len(fields) < 6 or len(kind) < 3:
            continue
        top, point = _unescape(fields[3]), _unescape(fields[4])
        if kind[0] == "cgroup2":
            yield _Mount(top, point, None)
        elif kind[0] in ("cgroup", "cpuset"):
            controllers = frozenset(kind[2].split(",")) | ({"cpuset"} if kind[0] == "cpuset" else frozenset())
            yield _Mount(top, point, controllers)


def _unescape(text: str) -> str:
    """A path of mountinfo, whose blanks and backslashes are octal escapes."""
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(escape, character)
    return text


def _below(path: str | None, top: str) -> str | None:
    """The path relative to the cgroup at a mount's top; None where the mount does not show it."""
    if path is None or top == "/":
        return path
    return path[len(top) :] if path == top or path.startswith(top + "/") else None


def _chain(base: Path, path: str) -> Iterator[Path]:
    """The folder of a cgroup path below base, then its ancestors up to base; `..` leads nowhere."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        parts = []
    for depth in range(len(parts), -1, -1):
        yield base.joinpath(*parts[:depth])
