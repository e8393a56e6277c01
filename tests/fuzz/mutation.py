"""Texts that are almost right: valid ones, cut, doubled, spliced with what parsers stumble over."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

FRAGMENTS = (
    *("", " ", "\t", "\n", "\r\n", "\0", ",", "-", ":", "::", "/", "//", "..", "../..", "~", ".", "+", "_", "\\"),
    *("0", "-1", "00", "1e9", "NaN", "inf", "1_0", "0x10", "65536", "65537", "99999999999999999999", "9" * 4400, "²"),
    *("max", "null", "true", "{", "}", "[", "]", "[[", '"', "'", "<", ">", "&", "GPU-????????", "é", "\ufffd"),
    *("a" * 300, "\u0661\u0662", "\U0001f600", "\\040"),
)
"""What parsers stumble over: blanks, ends, signs, digits that are none to a kernel, numbers that no integer type holds,
names that no file system takes."""

_MOST_EDITS = 4

Value = TypeVar("Value")

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
"""A word, blanks or one sign: what a parser looks at as a whole."""


@st.composite
def mutated(draw: DrawFn, seeds: Sequence[str]) -> str:
    """One of the seeds after up to four edits; any text at all now and then."""
    text = draw(st.sampled_from(seeds) | st.text(max_size=40))
    for _ in range(draw(st.integers(0, _MOST_EDITS))):
        spans = [match.span() for match in _TOKEN.finditer(text)] or [(0, len(text))]
        first, last = draw(st.sampled_from(spans))
        edit = draw(st.sampled_from(("insert", "cut", "double", "replace", "end")))
        fragment = draw(st.sampled_from(FRAGMENTS)) if edit in ("insert", "replace") else ""
        edited = {"insert": fragment + text[first:last], "double": text[first:last] * 2, "replace": fragment}
        text = text[:first] + edited.get(edit, "") + ("" if edit == "end" else text[last:])
    return text


def file_contents(seeds: Sequence[str]) -> SearchStrategy[bytes]:
    """What a file may hold: mutated text, or any bytes."""
    return mutated(seeds).map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=80)


JSON_LEAVES = st.sampled_from(
    [None, True, False, 0, 1, -1, 1 << 70, 1.5, float("inf"), float("nan"), "", "x", "0-3", "1e99", "9" * 4400]
)


def json_values(keys: Sequence[str], *, max_leaves: int = 25) -> SearchStrategy[object]:
    """Any JSON value whose objects have these keys."""
    return st.recursive(
        JSON_LEAVES,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(keys), inner, max_size=6),
        max_leaves=max_leaves,
    )


def outcome_of(call: Callable[[], Value], *expected: type[Exception]) -> Value | Exception:
    """What the call returns, or the error of an expected kind that it raises; any other error goes on."""
    try:
        return call()
    except expected as error:
        return error
