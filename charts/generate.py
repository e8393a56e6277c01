"""Writes what follows from the chart: its README's table of values and manifests/install.yaml.

Run `python charts/generate.py` after a change of the chart; a test compares the files with a fresh run.
Needs helm on PATH, or its path in HELM.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parent / "cpuplan"
INSTALL = Path(__file__).parent.parent / "manifests" / "install.yaml"

TABLE_START = "<!-- values: written by charts/generate.py -->"
TABLE_END = "<!-- end of values -->"

FOREIGN_OBJECTS = ("resources", "seLinuxOptions")
"""Values that are objects of Kubernetes' own, documented there."""

_KEY = re.compile(r"( *)([A-Za-z]+):")


def value_comments() -> dict[tuple[str, ...], str]:
    """The comment above each key of values.yaml, as one line, by the key's path."""
    found: dict[tuple[str, ...], str] = {}
    path: list[str] = []
    comment: list[str] = []
    for line in (CHART / "values.yaml").read_text().splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            comment.append(stripped.removeprefix("#").strip())
        elif (key := _KEY.match(line)) is not None:
            del path[len(key[1]) // 2 :]
            path.append(key[2])
            if comment:
                found[tuple(path)] = " ".join(comment)
            comment = []
        else:
            comment = []
    return found


def values_table() -> str:
    """The Markdown table of every value: its key, default and meaning."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    rows = [
        f"| `{'.'.join(path)}` | `{json.dumps(_at(defaults, path))}` | {text} |"
        for path, text in value_comments().items()
        if "properties" not in _schema_at(schema, path) or path[-1] in FOREIGN_OBJECTS
    ]
    return "\n".join(["| value | default | meaning |", "|---|---|---|", *rows])


def readme() -> str:
    """The chart's README with a fresh table."""
    text = (CHART / "README.md").read_text()
    before, _, rest = text.partition(TABLE_START)
    _, _, after = rest.partition(TABLE_END)
    return f"{before}{TABLE_START}\n{values_table()}\n{TABLE_END}{after}"


def install_manifest() -> str:
    """Everything of the chart for `kubectl apply -f`, its namespace included, for Kubernetes 1.36 and later."""
    rendered = subprocess.run(
        [
            os.environ.get("HELM", "helm"), "template", "cpuplan", str(CHART), "--namespace", "cpuplan",
            "--set", "namespace.create=true,policies.mutating=enabled",
        ],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return "# Rendered from charts/cpuplan by charts/generate.py.\n" + rendered


def _at(values: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        values = values[key]
    return values


def _schema_at(schema: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        schema = schema["properties"][key]
    return schema


def main() -> None:
    """Writes both files."""
    (CHART / "README.md").write_text(readme())
    INSTALL.write_text(install_manifest())


if __name__ == "__main__":
    main()
