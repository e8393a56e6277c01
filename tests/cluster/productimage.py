"""Our product's image: wheels gathered for the base's Python, then `docker build` without a network."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from tests.cluster import debian, images, places
from tests.cluster.console import ClusterError, run, step
from tests.cluster.engine import Engine

IMAGE = "cpuplan:dev"
"""The name that the Makefile, the tests and the demo give the image they build."""

DEFAULT_BASE = "python:3-slim"
"""The base wherever a registry brings it; else the home-made one."""

EXTRAS = "agent,operator"
"""What the processes in the image need. hostflag's numpy is not among them: only an engine passes arrays."""

PYTHON_MINIMUM = (3, 11)

_SOURCES_LABEL = "dev.cpuplan.sources"
_SOURCES = ("Dockerfile", ".dockerignore", "pyproject.toml", "constraints.txt", "README.md", "LICENSE")
_SOURCE_FOLDERS = ("operator/cpuplan", "hostflag_native")


def ensure(engine: Engine, *, image: str = IMAGE, base: str | None = None) -> str:
    """The name of the product image, which the engine holds afterwards, built from the present sources.

    Args:
        base: the base image; None: python:3-slim where it can be pulled, else the home-made one.

    Raises:
        ClusterError: the base has no Python 3.11, a wheel cannot be had, or a build failed.
    """
    chosen = base or images.pulled_or_home_made_base(engine, DEFAULT_BASE)
    key = _sources_key(chosen)
    if engine.has_image(image) and engine.label(image, _SOURCES_LABEL) == key:
        return image
    version = _python_version(engine, chosen)
    with places.locked("wheels"):
        wheels = places.CHECKOUT / "build" / "wheels"
        shutil.rmtree(wheels, ignore_errors=True)
        own = _own_wheel(wheels / "own")
        _copy_dependencies(own, version, wheels / "dependencies")
        with step(f"building image {image} on {chosen} (Python {version})"):
            engine.docker(
                "build", "--network=none", "--build-arg", f"BASE={chosen}", "--label", f"{_SOURCES_LABEL}={key}",
                "--tag", image, places.CHECKOUT,
            )  # fmt: skip
    return image


def chart_values(engine: Engine, image: str) -> dict[str, object]:
    """Chart values with which pods run exactly this image: its tag stays `dev`, so a label tells one from the next."""
    repository, _, tag = image.rpartition(":")
    build = {"podAnnotations": {"image-sources": engine.label(image, _SOURCES_LABEL)}}
    return {"image": {"repository": repository, "tag": tag}, "agent": build, "operator": build}


def _sources_key(base: str) -> str:
    """Twelve digits that change with anything the image is made from."""
    digest = hashlib.sha256(base.encode())
    for path in _source_files():
        digest.update(str(path.relative_to(places.CHECKOUT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _source_files() -> Iterator[Path]:
    for name in _SOURCES:
        yield places.CHECKOUT / name
    for folder in _SOURCE_FOLDERS:
        for path in sorted((places.CHECKOUT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


def _python_version(engine: Engine, base: str) -> str:
    """The base's Python as MAJOR.MINOR."""
    question = "import json, sys; print(json.dumps(sys.version_info[:2]))"
    command = ["run", "--rm", "--network=none", "--entrypoint", "python3", base, "-c", question]
    numbers = tuple(json.loads(engine.docker(*command)))
    version = ".".join(str(number) for number in numbers)
    if numbers < PYTHON_MINIMUM:
        raise ClusterError(f"base image {base} has Python {version}; cpuplan needs 3.11 or later: name another base")
    return version


def _own_wheel(folder: Path) -> Path:
    """Builds our wheel, with the compiled library in it, into the folder (made here)."""
    folder.mkdir(parents=True)
    debian.ensure({"gcc": "gcc"})
    # The build's packages from our own environment, where that has them, else fetched into one for this build.
    isolation = ["--no-build-isolation"] if find_spec("scikit_build_core") else []
    with step("building the cpuplan wheel"):
        run(
            [sys.executable, "-m", "pip", "wheel", "--no-deps", *isolation, "--wheel-dir", folder, places.CHECKOUT],
            log="wheels",
            environment={"HOSTFLAG_REQUIRE_LIBRARY": "1"},
        )
    found = list(folder.glob("cpuplan-*.whl"))
    if len(found) != 1:
        raise ClusterError(f"pip wheel left {len(found)} cpuplan wheels in {folder}, expected 1")
    return found[0]


def _copy_dependencies(own: Path, version: str, folder: Path) -> None:
    """Puts the wheels that ours needs on that Python into the folder (made here): from the cache, else downloaded."""
    folder.mkdir(parents=True)
    constraints = places.CHECKOUT / "constraints.txt"
    wanted = (places.CHECKOUT / "pyproject.toml").read_bytes() + constraints.read_bytes()
    kept = places.cache_dir() / "wheels" / f"py{version}-{hashlib.sha256(wanted).hexdigest()[:12]}"
    if not kept.is_dir():
        partial = kept.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        with step(f"downloading the wheels that cpuplan needs on Python {version}"):
            run(
                [
                    sys.executable, "-m", "pip", "download", "--only-binary=:all:", "--python-version", version,
                    "--constraint", constraints, "--dest", partial, f"{own}[{EXTRAS}]",
                ],
                log="wheels",
            )  # fmt: skip
        (partial / own.name).unlink(missing_ok=True)
        partial.rename(kept)
    for wheel in kept.glob("*.whl"):
        shutil.copy(wheel, folder)
