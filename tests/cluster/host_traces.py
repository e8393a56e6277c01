"""What an engine and kubelets change on the machine itself, noted before and undone afterwards.

Everything here also works after a run that was killed at any point: it looks at what is there now, and takes as
ours only what carries our folders' names, our containers' ids, or was not there when the note was made.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.cluster import process_identity
from tests.cluster.console import run

SYSCTLS = (
    "vm/overcommit_memory",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/ip_forward",
    "net/ipv6/conf/all/forwarding",
    "net/ipv6/conf/default/forwarding",
    "net/bridge/bridge-nf-call-iptables",
    "net/bridge/bridge-nf-call-ip6tables",
)
"""Settings of the whole machine that dockerd and the kubelet (protectKernelDefaults: false) set."""

FIXED_PLACES = ("/etc/docker/key.json", "/etc/docker", "/run/docker", "/run/containerd", "/opt/containerd")
"""What dockerd and its containerd make at fixed places, whatever their flags say."""

_IPTABLES = ("iptables", "ip6tables")
_DOCKER_BRIDGE = re.compile(r"docker0|br-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class HostNote:
    """The machine before us: sysctls by path, FORWARD policies by program, docker's bridges, its fixed places."""

    sysctls: dict[str, str]
    forward_policies: dict[str, str]
    bridges: list[str]
    fixed_places: list[str]

    def write(self, path: Path) -> None:
        """Keeps the note in a file, for `read_note`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        partial.rename(path)


def look() -> HostNote:
    """A note of the machine as it is now."""
    sysctls = {name: value for name in SYSCTLS if (value := _read(Path("/proc/sys", name))) is not None}
    policies = {}
    for program in _IPTABLES:
        found = re.search(r"^:FORWARD (\S+)", _rules(program, "filter"), re.MULTILINE)
        policies[program] = found.group(1) if found else "ACCEPT"
    return HostNote(sysctls, policies, _docker_bridges(), [path for path in FIXED_PLACES if Path(path).exists()])


def read_note(path: Path) -> HostNote | None:
    """The note in that file; None where there is none."""
    try:
        return HostNote(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def restore_sysctls(note: HostNote) -> None:
    """Gives the settings in the note their value of then, where they have another now."""
    for name, value in note.sysctls.items():
        path = Path("/proc/sys", name)
        if _read(path) not in {value, None}:
            path.write_text(value, encoding="utf-8")


def erase_engine(data_root: Path, run_dir: Path, note: HostNote) -> None:
    """Ends what is left of an engine that had these folders, and removes its mounts, cgroups and both folders."""
    containers = _container_ids(data_root)
    for pid in _engine_pids(run_dir, containers):
        _kill(pid)
    for mount_point in reversed([*_mounts_below(data_root), *_mounts_below(run_dir)]):
        subprocess.run(["umount", "--lazy", mount_point], check=False, capture_output=True)
    _remove_cgroups(containers)
    for folder in (data_root, run_dir):
        shutil.rmtree(folder, ignore_errors=True)
    for place in (Path(name) for name in FIXED_PLACES if name not in note.fixed_places):
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)


def erase_network(note: HostNote) -> None:
    """Removes the bridges and firewall rules that a Docker engine has made since the note.

    Where an engine had bridges before already, its firewall rules are not told from ours, and stay.
    """
    for bridge in (name for name in _docker_bridges() if name not in note.bridges):
        subprocess.run(["ip", "link", "delete", bridge], check=False, capture_output=True)
    if not note.bridges:
        for program in _IPTABLES:
            _remove_rules(program, note.forward_policies.get(program, "ACCEPT"))


def _container_ids(data_root: Path) -> set[str]:
    try:
        return {entry.name for entry in (data_root / "containers").iterdir()}
    except OSError:
        return set()


def _engine_pids(run_dir: Path, containers: set[str]) -> Iterator[int]:
    """Processes that name the run folder on their command line, or live in a cgroup of one of the containers."""
    for pid in process_identity.all_pids():
        if pid == os.getpid():
            continue
        program, *arguments = process_identity.command_line(pid) or [""]
        is_ours = Path(program).name in {"dockerd", "containerd", "containerd-shim-runc-v2"} and any(
            str(run_dir) in word for word in arguments
        )
        if is_ours or any(part in containers for part in re.split(r"[/\n]", _read(Path(f"/proc/{pid}/cgroup")) or "")):
            yield pid


def _kill(pid: int) -> None:
    identity = process_identity.identify(pid)
    if identity is None:
        return
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process_identity.end(identity, limit_seconds=10)


def _mounts_below(folder: Path) -> list[str]:
    """Mount points at or below the folder, parents first. Source: proc_pid_mountinfo(5), field 5."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()]
    return [point for point in points if Path(point).is_relative_to(folder)]


def _remove_cgroups(containers: set[str]) -> None:
    """Removes the containers' cgroups in every hierarchy, and docker's own group where it is empty then.

    An engine that still runs makes that group anew with its next container.
    """
    for parent in (*Path("/sys/fs/cgroup").glob("*/docker"), Path("/sys/fs/cgroup/docker")):
        for name in containers:
            for folder, _, _ in os.walk(parent / name, topdown=False):
                _rmdir(Path(folder))
        _rmdir(parent)


def _rmdir(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return


def _docker_bridges() -> list[str]:
    """The bridges that carry names as dockerd gives them, in our network namespace."""
    shown = subprocess.run(
        ["ip", "-json", "link", "show", "type", "bridge"], capture_output=True, text=True, check=False
    )
    names = (str(link.get("ifname")) for link in json.loads(shown.stdout or "[]"))
    return sorted(name for name in names if _DOCKER_BRIDGE.fullmatch(name))


def _rules(program: str, table: str) -> str:
    """The rules of one table as `iptables-save` prints them; empty where there are none (or no such program)."""
    saver = shutil.which(f"{program}-save")
    if saver is None or os.geteuid() != 0:
        return ""
    return subprocess.run([saver, "-t", table], check=False, capture_output=True, text=True).stdout


def docker_rules(saved: str) -> tuple[list[str], list[str]]:
    """Of one table as `iptables-save` prints it: dockerd's chains, and the rules elsewhere that are dockerd's.

    A rule is dockerd's that names one of its chains or bridges.
    """
    chains = re.findall(r"^:(DOCKER\S*)", saved, re.MULTILINE)
    rules = [
        line
        for line in saved.splitlines()
        if line.startswith("-A ")
        and line.split()[1] not in chains
        and any(word in chains or _DOCKER_BRIDGE.fullmatch(word) for word in line.split())
    ]
    return chains, rules


def _remove_rules(program: str, forward_policy: str) -> None:
    """Removes dockerd's chains, the rules that jump to them or name its bridges, and its FORWARD policy."""
    for table in ("filter", "nat", "raw"):
        chains, rules = docker_rules(_rules(program, table))
        for rule in rules:
            run([program, "-t", table, "-D", *rule.split()[1:]], log="engine")
        for action in ("-F", "-X"):
            for chain in chains:
                run([program, "-t", table, action, chain], log="engine")
    if re.search(r"^:FORWARD (?!-)", _rules(program, "filter"), re.MULTILINE):
        run([program, "-P", "FORWARD", forward_policy], log="engine")


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
