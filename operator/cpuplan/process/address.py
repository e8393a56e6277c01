"""Where a process listens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a TCP port; an empty host is every interface, port 0 any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """The address that `0.0.0.0:9465`, `[::]:9465` or `:9465` names.

    Raises:
        ValueError: it is none of these.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r} is not an address: expected HOST:PORT such as 0.0.0.0:9465 or [::]:9465")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))
