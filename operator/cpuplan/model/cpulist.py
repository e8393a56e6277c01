"""CPU sets as text, in the kernel's list format (`0-3,8`).

Source: Documentation/admin-guide/cputopology.rst and bitmap_parselist() of the Linux kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# More than any kernel is built for (CONFIG_NR_CPUS is at most 8192): a range beyond it is a typing error
# or an attack, and must not be expanded.
MAX_CPU = 1 << 16

_PART = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)


def parse_cpu_list(text: str) -> frozenset[int]:
    """The CPUs that a kernel list names; empty parts are skipped and a falling range is empty.

    Raises:
        ValueError: a part is neither a number nor a range, or names a CPU above MAX_CPU.
    """
    spans: list[tuple[int, int]] = []
    for raw in text.split(","):
        part = raw.strip()
        if not part:
            continue
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"CPU list {_shorten(text)!r}: {_shorten(part)!r} is not a CPU number or a range like 0-3")
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if max(first, last) > MAX_CPU:
            raise ValueError(f"CPU list {_shorten(text)!r}: {_shorten(part)!r} is beyond CPU {MAX_CPU}")
        spans.append((first, last))
    return frozenset(_expand(spans))


def _expand(spans: list[tuple[int, int]]) -> set[int]:
    """The CPUs of the spans; each is produced once, however often the spans name it."""
    cpus: set[int] = set()
    first_new = 0
    for first, last in sorted(spans):
        cpus.update(range(max(first, first_new), last + 1))
        first_new = max(first_new, last + 1)
    return cpus


def format_cpu_list(cpus: Iterable[int]) -> str:
    """The shortest kernel list of the CPUs, ascending: `0-1,4`; empty text for no CPU."""
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
