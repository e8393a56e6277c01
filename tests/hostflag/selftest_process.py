"""Runs the self-test's program as the init container does."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Told:
    """What the program said."""

    exit_code: int
    line: str
    details: dict[str, Any] = field(repr=False)

    def outcomes(self, part: str) -> dict[str, str]:
        """Check names and outcomes of one part."""
        return {check["name"]: check["outcome"] for check in self.details["parts"].get(part, [])}


def start(*arguments: str, **environment: str) -> "subprocess.Popen[str]":
    """The running program."""
    command = [sys.executable, "-m", "hostflag_native", "selftest", *arguments]
    return subprocess.Popen(
        command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: "subprocess.Popen[str]") -> Told:
    """Waits for it; it must say a line and a JSON object, and complain about nothing."""
    output, complaint = process.communicate(timeout=90)
    assert complaint == ""
    line, _, rest = output.partition("\n")
    return Told(process.returncode, line, json.loads(rest))


def selftest(*arguments: str, **environment: str) -> Told:
    """Both."""
    return finish(start(*arguments, **environment))
