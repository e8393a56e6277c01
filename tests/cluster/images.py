"""The images that no registry has to bring: a Python base from Debian packages, and a kind node on top of it.

Both are kept in the cache as one archive, by the content of everything they are made from, so that an engine gets
them with `docker load`. Where kind's own node image can be pulled, none of this is used for the nodes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import debian, go_programs, places
from tests.cluster.console import ClusterError, run, say, step
from tests.cluster.engine import Engine

SUITE = "bookworm"
"""The Debian release of both images. Its containerd (1.6) and runc serve cgroup v1, which newer ones drop."""

BASE_PACKAGES = ("ca-certificates", "python3", "python3-venv")
"""What the Python base image has beyond Debian's minimum."""

KIND_NODE_IMAGE = "kindest/node:v1.37.0@sha256:a1ed56cfb0e7b93589bdf97c8cd566405a265939e3620fc4f5de89adff580ae5"
"""kind 0.33's own node image. Source: pkg/apis/config/defaults/image.go of the pinned kind."""

REPOSITORY = "cpuplan.test"
"""Prefix of the component images in the home-made node; a reserved name, so no registry can be meant."""

FIRST_WORD_SECONDS = 15.0
"""How long a registry may take to answer a pull at all; without one the engine fails or hangs."""

PULL_SECONDS = 900.0
"""Limit for a whole pull; kind's node image has about 400 MB."""

KEPT_ARCHIVES = 2
"""Archives of one image that the cache keeps: two branches may take turns."""

_COMPONENTS = {
    "kube-apiserver": go_programs.KUBERNETES_VERSION,
    "kube-controller-manager": go_programs.KUBERNETES_VERSION,
    "kube-scheduler": go_programs.KUBERNETES_VERSION,
    "etcd": "3.7.0-0",
}
"""Tags as `kubeadm config images list` names them."""

_PAUSE_TAG = "3.10.2"
_NODE_PROGRAMS = ("kubelet", "kubeadm", "kubectl", "crictl")


@dataclass(frozen=True, slots=True)
class HomeMade:
    """Names of the images made here; the tags change with their content."""

    base: str
    node: str


def home_made_names() -> HomeMade:
    """The names that the images made from the present files have (whether or not they exist yet)."""
    base = hashlib.sha256(f"{SUITE} {BASE_PACKAGES}".encode())
    node = base.copy()
    for path in sorted((places.HERE / "node").iterdir()):
        node.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    node.update(f"{REPOSITORY} {_COMPONENTS} {_PAUSE_TAG} {_NODE_PROGRAMS} {go_programs.fingerprint()}".encode())
    return HomeMade(f"cpuplan-base:{base.hexdigest()[:12]}", f"cpuplan-node:{node.hexdigest()[:12]}")


def ensure_base(engine: Engine) -> str:
    """The name of the Python base image, which the engine holds afterwards."""
    return _ensure(engine, home_made_names().base, lambda: _make_base(engine))


def pulled_or_home_made_base(engine: Engine, image: str) -> str:
    """The name of a Python base image, which the engine holds afterwards: `image` where a registry brings it.

    Once a home-made one is in the cache, no registry is asked again.
    """
    is_asked = not _archive(home_made_names().base).is_file()
    return image if is_asked and pull(engine, image) else ensure_base(engine)


def ensure_node(engine: Engine) -> str:
    """The name of the node image, which the engine holds afterwards: kind's own where it can be had.

    A home-made one that is in the cache already is not asked of a registry again.

    Raises:
        ClusterError: neither kind's own nor a home-made one can be had.
    """
    names = home_made_names()
    if not _archive(names.node).is_file() and pull(engine, KIND_NODE_IMAGE):
        return KIND_NODE_IMAGE
    version = engine.docker("info", "--format", "{{.CgroupVersion}}").strip()
    if version != "1":
        raise ClusterError(
            f"kind's node image {KIND_NODE_IMAGE} cannot be pulled, and the home-made one needs cgroup v1,"
            f" but this engine has cgroup v{version}: let the engine reach a registry"
        )
    return _ensure(engine, names.node, lambda: _make_node(engine, names))


def pull(engine: Engine, image: str) -> bool:
    """Whether the engine holds the image afterwards; a registry that says nothing for 15 s is none."""
    if engine.has_image(image):
        return True
    say(f"==> pulling {image}")
    log = places.logs_dir() / "pull.log"
    start = time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            ["docker", "pull", image],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **engine.environment},
        )
        while process.poll() is None:
            waited = time.monotonic() - start
            if waited > PULL_SECONDS or (waited > FIRST_WORD_SECONDS and log.stat().st_size == 0):
                process.terminate()
            time.sleep(0.2)
    outcome = "done in" if process.returncode == 0 else "no registry brings it, known after"
    say(f"    {outcome} {time.monotonic() - start:.1f} s")
    return process.returncode == 0


def _ensure(engine: Engine, image: str, make: Callable[[], None]) -> str:
    """The image, in the engine: as it is there, from the cache, or made and then kept in the cache."""
    if engine.has_image(image):
        return image
    archive = _archive(image)
    with places.locked(archive.stem):
        if not archive.is_file():
            make()
            archive.parent.mkdir(parents=True, exist_ok=True)
            partial = archive.with_suffix(".partial")
            with step(f"keeping image {image} in the cache"):
                engine.docker("save", "--output", partial, image)
            partial.rename(archive)
            _forget_older(archive)
    if not engine.has_image(image):
        with step(f"loading image {image} from the cache"):
            engine.docker("load", "--input", archive)
    return image


def _forget_older(archive: Path) -> None:
    """Removes older archives of the same image, all but KEPT_ARCHIVES: a node's has 1 GB."""
    kind = archive.name.rpartition("-")[0]
    alike = sorted(archive.parent.glob(f"{kind}-*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in alike[KEPT_ARCHIVES:]:
        path.unlink()


def _archive(image: str) -> Path:
    return places.cache_dir() / "images" / f"{image.replace(':', '-')}.tar"


def _make_base(engine: Engine) -> None:
    """Makes the Python base image with debootstrap.

    Raises:
        ClusterError: debootstrap cannot be had or failed.
    """
    debian.ensure({"debootstrap": "debootstrap"})
    image = home_made_names().base
    with step(f"making base image {image} from Debian packages"), _working_folder(image) as folder:
        tree = folder / "tree"
        run(
            ["debootstrap", "--variant=minbase", f"--include={','.join(BASE_PACKAGES)}", SUITE, tree],
            log="images",
            limit_seconds=1200,
        )
        for leftover in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"):
            shutil.rmtree(tree / leftover, ignore_errors=True)
        archive = folder / "tree.tar"
        run(["tar", "--create", "--numeric-owner", "--file", archive, "--directory", tree, "."], log="images")
        engine.docker("import", archive, image)


def _make_node(engine: Engine, names: HomeMade) -> None:
    """Makes the node image: the component images first, then the node that carries them."""
    base = ensure_base(engine)
    binaries = go_programs.built(go_programs.ALL)
    with step(f"making node image {names.node}"), _working_folder(names.node) as folder:
        context = folder / "node"
        shutil.copytree(places.HERE / "node", context)
        for subfolder in ("programs", "images"):
            (context / subfolder).mkdir()
        for program in _NODE_PROGRAMS:
            shutil.copy(binaries / program, context / "programs")
        (context / "version").write_text(go_programs.KUBERNETES_VERSION, encoding="utf-8")

        tools = f"{REPOSITORY}/tools"
        _build(engine, context, "tools.Dockerfile", tools, BASE=base)
        control_plane = [f"{REPOSITORY}/{name}:{tag}" for name, tag in _COMPONENTS.items()]
        for image, program in zip(control_plane, _COMPONENTS, strict=True):
            _build(engine, _context_of(folder, binaries, program), "component.Dockerfile", image, PROGRAM=program)
        every_node = [f"{REPOSITORY}/kube-proxy:{go_programs.KUBERNETES_VERSION}", f"{REPOSITORY}/pause:{_PAUSE_TAG}"]
        _build(engine, _context_of(folder, binaries, "kube-proxy"), "kube-proxy.Dockerfile", every_node[0], TOOLS=tools)
        _build(engine, _context_of(folder, binaries, "pause"), "pause.Dockerfile", every_node[1])
        engine.docker("save", "--output", context / "images" / "control-plane.tar", *control_plane)
        engine.docker("save", "--output", context / "images" / "every-node.tar", *every_node)
        _build(engine, context, "node.Dockerfile", names.node, TOOLS=tools)
        engine.docker("rmi", "--force", tools, *control_plane, *every_node)


def _context_of(folder: Path, binaries: Path, program: str) -> Path:
    """A build context with that program alone, so that no more is sent to the engine."""
    context = folder / program
    context.mkdir()
    shutil.copy(binaries / program, context)
    return context


def _build(engine: Engine, context: Path, dockerfile: str, image: str, **arguments: str) -> None:
    """Builds an image with the host's network, for `apt-get` inside."""
    settings = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    recipe = places.HERE / "node" / dockerfile
    engine.docker("build", "--quiet", "--network=host", *settings, "--file", recipe, "--tag", image, context)


@contextmanager
def _working_folder(image: str) -> Iterator[Path]:
    """A folder in the cache (the system's temporary one may be small or forbid devices), gone after the block."""
    root = _archive(image).with_suffix(".work")
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)
