"""What a command answered."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """Exit code, standard output and standard error of a command."""

    exit_code: int
    output: str
    complaint: str

    @property
    def document(self) -> Any:
        """The output as JSON."""
        return json.loads(self.output)

    @property
    def sentence(self) -> str:
        """The one sentence on standard error; the test fails where there are more lines, or fewer."""
        lines = self.complaint.splitlines()
        assert len(lines) == 1, self.complaint
        return lines[0]

    @property
    def facts(self) -> dict[str, str]:
        """The `name  value` lines at the top of a plain table, up to the first blank line."""
        top = self.output.split("\n\n", maxsplit=1)[0]
        return {name.strip(): value.strip() for name, _, value in (line.partition("  ") for line in top.splitlines())}
