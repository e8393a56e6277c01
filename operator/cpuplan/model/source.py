"""Where a fact comes from: a file, and the value that stood there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Source:
    """A file, by the name that the kernel gives it, and the value that stood there; None: no such file.

    What is no file (an annotation, a flag, an answer of the kubelet) is called by its name instead.
    """

    file: str
    value: str | None

    def __str__(self) -> str:
        return f"{self.file}: {'missing or malformed' if self.value is None else self.value or '(empty)'}"

    def to_document(self) -> dict[str, Any]:
        """The JSON object; a missing file is null."""
        return {"file": self.file, "value": self.value}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Source:
        """What `to_document` wrote.

        Raises:
            KeyError, TypeError: a field is missing or malformed.
        """
        value = document["value"]
        return cls(str(document["file"]), None if value is None else str(value))
