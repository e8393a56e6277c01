"""The runtime that asks for no more capabilities than the machine has."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import places

RUNTIME = places.HERE / "node" / "within-bounds-runc"


@pytest.fixture
def runc(tmp_path: Path) -> Path:
    """A folder with a runc that writes down its arguments."""
    program = tmp_path / "bin" / "runc"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\n', encoding="utf-8")
    program.chmod(0o755)
    return program.parent


def call(runc: Path, *arguments: str) -> None:
    subprocess.run([RUNTIME, *arguments], check=True, env={**os.environ, "PATH": f"{runc}:{os.environ['PATH']}"})


def process(*names: str) -> dict[str, Any]:
    return {"args": ["sh"], "capabilities": {"bounding": list(names), "effective": list(names)}}


def test_a_created_container_keeps_only_capabilities_that_exist_here(runc: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"hostname": "a", "process": process("CAP_CHOWN", "CAP_NOT_HERE")}), encoding="utf-8")
    call(runc, "--root", "/r", "create", "--bundle", str(tmp_path), "id")
    assert json.loads(config.read_text(encoding="utf-8")) == {"hostname": "a", "process": process("CAP_CHOWN")}
    assert (tmp_path / "arguments").read_text(encoding="utf-8") == f"--root /r create --bundle {tmp_path} id\n"


def test_a_process_that_joins_a_container_is_trimmed_too(runc: Path, tmp_path: Path) -> None:
    description = tmp_path / "process.json"
    description.write_text(json.dumps(process("CAP_NOT_HERE", "CAP_KILL")), encoding="utf-8")
    call(runc, "exec", "--process", str(description), "id")
    assert json.loads(description.read_text(encoding="utf-8")) == process("CAP_KILL")


def test_a_process_without_capabilities_stays_as_it_is(runc: Path, tmp_path: Path) -> None:
    description = tmp_path / "process.json"
    description.write_text('{"args": ["sh"]}', encoding="utf-8")
    call(runc, "exec", "--process", str(description), "id")
    assert json.loads(description.read_text(encoding="utf-8")) == {"args": ["sh"]}


def test_other_commands_reach_runc_unchanged(runc: Path, tmp_path: Path) -> None:
    call(runc, "kill", "id", "KILL")
    assert (tmp_path / "arguments").read_text(encoding="utf-8") == "kill id KILL\n"
