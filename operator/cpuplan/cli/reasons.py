"""Explanations as output: sentences with the files and values that they come from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..model.cpulist import format_cpu_list
from ..planning.candidates import Candidates
from ..planning.explain import Sentence
from .output import Table


def reasons_table(title: str, sentences: Iterable[Sentence]) -> Table:
    """One row per sentence; the files it came from follow it, one row each."""
    rows: list[tuple[str, ...]] = []
    for sentence in sentences:
        rows.append((str(sentence.topic), sentence.text))
        rows.extend(("", f"from {source}") for source in sentence.sources)
    return Table(title, ("ABOUT", "WHY"), tuple(rows))


def candidates_table(title: str, candidates: Iterable[Candidates]) -> Table:
    """One row per group of CPUs; the files that its reason came from follow it, one row each."""
    rows: list[tuple[str, ...]] = []
    for each in candidates:
        rows.append((each.whose, str(each.fate), f"{format_cpu_list(each.cpus)}: {each.text}"))
        rows.extend(("", "", f"from {source}") for source in each.sources)
    return Table(title, ("FOR", "FATE", "CPUS AND WHY"), tuple(rows))


def reasons_document(sentences: Iterable[Sentence]) -> list[dict[str, Any]]:
    """The sentences as JSON objects."""
    return [sentence.to_document() for sentence in sentences]
