"""The README's console blocks: commands after `$ `, each with the lines it shows of its output."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
README = CHECKOUT / "README.md"

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "@@@ end of command"


@dataclass(frozen=True, slots=True)
class Command:
    """One command line and the output lines that the README shows below it."""

    line: str
    shown: tuple[str, ...]


def section_commands(title: str) -> list[Command]:
    """All commands of the section with that title, in order."""
    text = README.read_text(encoding="utf-8")
    section = next(part for part in re.split(r"^## ", text, flags=re.MULTILINE) if part.startswith(title))
    commands = []
    for block in _BLOCK.findall(section):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, *shown = part.splitlines()
            commands.append(Command(line, tuple(shown)))
    return commands


def outputs(commands: list[Command], *, environment: Mapping[str, str], limit_seconds: float) -> list[str]:
    """What each command writes, when all are typed into one shell in the checkout; fails at the first that fails."""
    script = "\n".join(f"{command.line}\necho '{_MARK}'" for command in commands)
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=CHECKOUT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit_seconds,
        check=False,
    )
    found = done.stdout.split(f"{_MARK}\n")
    if done.returncode != 0:
        failed = commands[min(len(found), len(commands)) - 1].line
        raise AssertionError(f"`{failed}` ended with {done.returncode}:\n{found[-1][-2000:]}\n{done.stderr[-2000:]}")
    return found[:-1]


def lacking(command: Command, output: str) -> list[str]:
    """The shown lines that no line of the output begins like, up to a `…`; columns may be wider or narrower."""
    written = {" ".join(line.split()) for line in output.splitlines()}
    begins = [" ".join(line.partition("…")[0].split()) for line in command.shown]
    return [begin for begin in begins if not any(line.startswith(begin) for line in written)]
