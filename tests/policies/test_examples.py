"""The examples of manifests/ are accepted as they are, and their pods get what the annotation promises."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.apiserver import ApiServer

EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples"
NAMES = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
WITH_PODS = [name for name in NAMES if (EXAMPLES / name / "pod.yaml").exists()]


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_accepted(api_server: ApiServer, name: str) -> None:
    folder = str(EXAMPLES / name)
    done = api_server.kubectl("create", "--dry-run=server", "--validate=strict", "-n", "demo", "-f", folder)
    assert "created (server dry run)" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("name", WITH_PODS)
def test_an_example_s_pod_waits_for_its_plan(api_server: ApiServer, name: str) -> None:
    path = str(EXAMPLES / name / "pod.yaml")
    pod = json.loads(api_server.kubectl("create", "--dry-run=server", "-n", "demo", "-f", path, "-o", "json").stdout)
    assert pod["spec"]["initContainers"][0]["name"] == "cpuplan"


def test_the_readme_tells_of_each_example() -> None:
    told = re.findall(r"^\| `([^`]+)` \|", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert told == NAMES
