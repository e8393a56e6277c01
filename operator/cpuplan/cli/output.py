"""Output for people: facts and tables, by rich where it is installed and the output is a terminal.

Everywhere else plain text: aligned columns, one line per row, so that grep and awk work on it.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

_GAP = "  "
_NARROWEST_COLUMN = 20
"""Characters that the last column of a plain table gets at least, however narrow the terminal is."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values, one per line, under a title (may be empty)."""

    title: str
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under column names, under a title (may be empty)."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Block = Facts | Table


def print_blocks(blocks: Sequence[Block], stream: TextIO | None = None) -> None:
    """Prints the blocks to the stream (standard output by default), separated by blank lines."""
    target = sys.stdout if stream is None else stream
    if target.isatty():
        try:
            _print_rich(blocks, target)
        except ModuleNotFoundError:
            from shutil import get_terminal_size  # noqa: PLC0415 - it loads compressors; only terminals need it

            _print_plain(blocks, target, get_terminal_size().columns)
        return
    _print_plain(blocks, target, None)


def _print_rich(blocks: Sequence[Block], stream: TextIO) -> None:
    from rich.console import Console  # noqa: PLC0415 - only where a person looks at a terminal
    from rich.table import Table as RichTable  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(file=stream, highlight=False)
    for index, block in enumerate(blocks):
        if index:
            console.print()
        if block.title:
            console.print(Text(block.title, style="bold"))
        grid = RichTable(box=None, show_header=isinstance(block, Table), header_style="dim", pad_edge=False)
        if isinstance(block, Facts):
            grid.add_column(style="dim", no_wrap=True)
            grid.add_column(overflow="fold")
            rows: Sequence[Sequence[str]] = block.pairs
        else:
            for column in block.columns:
                grid.add_column(column, overflow="fold")
            rows = block.rows
        for row in rows:
            grid.add_row(*(Text(cell) for cell in row))
        console.print(grid)


def _print_plain(blocks: Sequence[Block], stream: TextIO, width: int | None) -> None:
    for index, block in enumerate(blocks):
        if index:
            print(file=stream)
        if block.title:
            print(block.title, file=stream)
        rows = [block.columns, *block.rows] if isinstance(block, Table) else list(block.pairs)
        for line in _aligned(rows, width):
            print(line, file=stream)


def _aligned(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """The rows with columns aligned; the last column is wrapped to the width where there is one."""
    if not rows:
        return []
    sizes = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    indent = sum(size + len(_GAP) for size in sizes)
    lines = []
    for row in rows:
        start = "".join(cell.ljust(size) + _GAP for cell, size in zip(row, sizes, strict=False))
        parts = [row[-1]]
        if width is not None:
            parts = textwrap.wrap(row[-1], max(_NARROWEST_COLUMN, width - indent)) or [""]
        lines.append((start + parts[0]).rstrip())
        lines.extend(" " * indent + part for part in parts[1:])
    return lines
