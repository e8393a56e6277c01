"""Where images come from: a registry, the cache, or the recipes here; with a docker client that a test can watch."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cluster import images, kindcluster, productimage
from tests.cluster.console import ClusterError
from tests.cluster.engine import Engine

ENGINE = Engine(None, is_ours=False)

CLIENT = """\
#!/bin/sh
echo "$*" >> "{folder}/calls"
case "$1 $2" in
  "image inspect") [ -e "{folder}/has-$(echo "$3" | tr ':/@' '---')" ] ;;
  pull*) {pull} ;;
  save*) echo > "$3" ;;
  load*) touch "{folder}/has-$(basename "$3" .tar)" ;;
  info*) echo {cgroup_version} ;;
  run*) echo "{python}" ;;
esac
"""


class Docker:
    """A docker client that is first on PATH: it notes its calls, and answers as it is told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answer()

    def answer(self, *, pull: str = "exit 1", cgroup_version: str = "1", python: str = "[3, 11]") -> None:
        """What it does from now on: the shell command for a pull, the engine's cgroup version, a base's Python."""
        program = self.folder / "docker"
        program.write_text(
            CLIENT.format(folder=self.folder, pull=pull, cgroup_version=cgroup_version, python=python), encoding="utf-8"
        )
        program.chmod(0o755)

    def calls(self, verb: str) -> list[str]:
        """The calls that began with that word."""
        return [line for line in (self.folder / "calls").read_text("utf-8").splitlines() if line.startswith(verb)]

    def cached(self, image: str) -> None:
        """Puts an archive of the image into the cache."""
        archive = self.folder / "cache" / "images" / f"{image.replace(':', '-')}.tar"
        archive.parent.mkdir(parents=True, exist_ok=True)
        archive.write_bytes(b"")


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Docker:
    monkeypatch.setenv("CPUPLAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CPUPLAN_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("tests.cluster.go_programs.fingerprint", lambda: "programs")
    return Docker(tmp_path)


def test_kinds_own_node_image_is_used_where_a_registry_brings_it(docker: Docker) -> None:
    docker.answer(pull="echo v1.37.0: Pulling from kindest/node")
    assert images.ensure_node(ENGINE) == images.KIND_NODE_IMAGE


def test_a_node_image_in_the_cache_is_loaded_and_no_registry_asked(docker: Docker) -> None:
    name = images.home_made_names().node
    docker.cached(name)
    assert images.ensure_node(ENGINE) == name
    assert (len(docker.calls("load")), docker.calls("pull")) == (1, [])


def test_without_a_registry_an_engine_on_cgroup_v2_is_refused_with_the_way_out(docker: Docker) -> None:
    docker.answer(cgroup_version="2")
    with pytest.raises(
        ClusterError, match="needs cgroup v1, but this engine has cgroup v2: let the engine reach a reg"
    ):
        images.ensure_node(ENGINE)


def test_a_new_image_takes_the_oldest_archives_place_in_the_cache(
    docker: Docker, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker.cached("cpuplan-base:1")
    docker.cached("cpuplan-base:2")
    os.utime(docker.folder / "cache" / "images" / "cpuplan-base-1.tar", (0, 0))
    monkeypatch.setattr(images, "_make_base", lambda _engine: None)
    name = images.ensure_base(ENGINE)
    kept = {path.stem for path in (docker.folder / "cache" / "images").iterdir()}
    assert kept == {"cpuplan-base-2", name.replace(":", "-")}


def test_a_registry_that_says_nothing_is_given_up(docker: Docker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "FIRST_WORD_SECONDS", 0.2)
    docker.answer(pull="exec sleep 300")
    assert not images.pull(ENGINE, "python:3-slim")


def test_a_slow_registry_that_answers_is_waited_for(docker: Docker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "FIRST_WORD_SECONDS", 0.2)
    docker.answer(pull="echo Pulling; sleep 1")
    assert images.pull(ENGINE, "python:3-slim")


def test_a_base_with_an_old_python_is_refused_with_both_versions(docker: Docker) -> None:
    docker.answer(python="[3, 9]")
    with pytest.raises(ClusterError, match=r"base image old:1 has Python 3\.9; cpuplan needs 3\.11 or later"):
        productimage.ensure(ENGINE, base="old:1")


def test_only_the_home_made_node_goes_without_dns_and_kinds_pod_network() -> None:
    texts = [
        json.dumps(kindcluster.configuration(Path("/policy.yaml"), is_home_made=is_home_made))
        for is_home_made in (False, True)
    ]
    assert ["addon/coredns" in text for text in texts] == [False, True]
    assert ['"disableDefaultCNI": true' in text for text in texts] == [False, True]
    assert ["audit-policy-file" in text for text in texts] == [True, True]
