"""The options that say which machine is looked at: this one, or a tree of files."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from ..host.affinity import process_mask
from ..host.cgroup import CpuLimit, cgroup_cpu_limit, cgroup_cpuset, cpu_limit_sources, cpuset_source, own_mountinfo
from ..host.root import HostRoot
from ..host.threads import read_allowed_cpus
from ..model.source import Source


def add_root_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --sysfs-root, --proc-root and --cgroup-root."""
    group = parser.add_argument_group("which machine")
    group.add_argument(
        "--sysfs-root",
        type=Path,
        metavar="DIR",
        help="folder that stands for /sys, or a folder that holds sys (and proc); default: this machine",
    )
    group.add_argument(
        "--proc-root", type=Path, metavar="DIR", help="folder that stands for /proc; default: proc beside the sysfs"
    )
    group.add_argument(
        "--cgroup-root",
        type=Path,
        metavar="DIR",
        help="folder that stands for /sys/fs/cgroup; default: fs/cgroup in the sysfs",
    )


def chosen_root(namespace: argparse.Namespace) -> HostRoot:
    """The trees that the options name.

    Raises:
        HostReadError: the folder is no sysfs.
    """
    sysfs = Path("/sys") if namespace.sysfs_root is None else namespace.sysfs_root
    below = sysfs / "sys"
    if not HostRoot(sys=sysfs).cpu_folder.is_dir() and HostRoot(sys=below).cpu_folder.is_dir():
        sysfs = below
    root = HostRoot(
        sys=sysfs,
        proc=sysfs.parent / "proc" if namespace.proc_root is None else namespace.proc_root,
        cgroup=sysfs / "fs" / "cgroup" if namespace.cgroup_root is None else namespace.cgroup_root,
    )
    root.require_sysfs()
    return root


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a process of the machine may use, None where it is not told.

    Attributes:
        mask: the affinity of the process (of the tree's `proc/self`).
        cpuset: the CPUs that its cgroup grants.
        limit: the tightest CPU limit and the cgroup that sets it.
        cpuset_source: the file of the cpuset.
        limit_sources: the files of the CPU limits of its cgroup and all ancestors.
    """

    mask: frozenset[int] | None
    cpuset: frozenset[int] | None
    limit: CpuLimit
    cpuset_source: Source | None
    limit_sources: tuple[Source, ...]


def read_allowance(root: HostRoot) -> Allowance:
    """The mask, cpuset and quota of this process, or of the process that `proc/self` of a tree describes."""
    memberships, mounts = root.proc / "self" / "cgroup", own_mountinfo(root)
    return Allowance(
        mask=process_mask() if root == HostRoot() else read_allowed_cpus("self", root),
        cpuset=cgroup_cpuset(root.cgroup, memberships, mountinfo=mounts),
        limit=cgroup_cpu_limit(root.cgroup, memberships, mountinfo=mounts),
        cpuset_source=cpuset_source(root.cgroup, memberships, mountinfo=mounts),
        limit_sources=cpu_limit_sources(root.cgroup, memberships, mountinfo=mounts),
    )
