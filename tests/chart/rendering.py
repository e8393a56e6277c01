"""The chart as manifests, for tests of the chart itself and for tests that install it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.apiserver import find_program

CHART = Path(__file__).parents[2] / "charts" / "cpuplan"
NAMESPACE = "cpuplan"

Manifest = dict[str, Any]


class RefusedError(Exception):
    """Helm refused the values; the text is what it says to the user."""


def rendered(*settings: str, arguments: Sequence[str] = ()) -> str:
    """What `helm template` makes of the chart with these `--set` settings.

    Raises:
        RefusedError: the schema or a template refused the values.
    """
    sets = [argument for setting in settings for argument in ("--set", setting)]
    done = subprocess.run(
        [find_program("helm"), "template", "cpuplan", CHART, "--namespace", NAMESPACE, *sets, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RefusedError(done.stderr)
    return done.stdout


def manifests(*settings: str, arguments: Sequence[str] = ()) -> list[Manifest]:
    """The rendered objects, in Helm's order."""
    return [document for document in yaml.safe_load_all(rendered(*settings, arguments=arguments)) if document]


def one(objects: Sequence[Manifest], kind: str, name: str) -> Manifest:
    """The object of that kind and name; it must be there exactly once."""
    (found,) = [item for item in objects if item["kind"] == kind and item["metadata"]["name"] == name]
    return found
