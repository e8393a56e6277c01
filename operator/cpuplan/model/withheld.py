"""CPUs on which a container may run, and which no plan uses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from .cpulist import format_cpu_list


class WithheldFor(StrEnum):
    """Why a plan does without CPUs on which the container may run."""

    OFFLINE = "offline"
    ISOLATED = "isolated"
    """The kernel keeps them from its scheduler (`isolcpus`)."""
    RESERVED = "reserved"
    """The administrator keeps them from plans (`agent.reservedCpus`)."""


@dataclass(frozen=True, slots=True)
class Withheld:
    """CPUs of a container's cpuset that no plan uses, and why: a word of WithheldFor, or of a later version."""

    why: str
    cpus: frozenset[int]

    def __str__(self) -> str:
        return f"{format_cpu_list(self.cpus)} ({self.why})"


def withheld_document(withheld: Iterable[Withheld]) -> dict[str, str]:
    """The JSON object: CPU lists by why."""
    return {each.why: format_cpu_list(each.cpus) for each in withheld}
