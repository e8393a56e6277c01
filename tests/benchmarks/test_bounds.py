"""What the benchmarks' program answers; nothing is measured here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.__main__ import ALL, main
from benchmarks.timing import Figure

BOUNDED = Figure("planning", 2.0, "ms", 2)
UNBOUNDED = Figure("reading", 900.0, "ms")
EXCEEDED = Figure("importing", 2.01, "ms", 2)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes the figures those of the one benchmark there is."""

    def answer(*figures: Figure) -> None:
        monkeypatch.setattr("benchmarks.__main__.ALL", {"sample": lambda: list(figures)})

    return answer


def test_figures_within_their_bounds_pass(measured: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    measured(BOUNDED, UNBOUNDED)

    assert main([]) == 0
    output, complaint = capsys.readouterr()
    assert (output, complaint) == (f"{BOUNDED}\n{UNBOUNDED}\n", "")


def test_a_figure_over_its_bound_fails_and_is_named_after_all_were_measured(
    measured: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    measured(EXCEEDED, BOUNDED)

    assert main(["sample"]) == 1
    output, complaint = capsys.readouterr()
    assert output.splitlines()[0].endswith("2.01 ms   (bound 2 ms)   EXCEEDED")
    assert output.splitlines()[1] == str(BOUNDED)
    assert complaint == "over the bound: importing\n"


def test_an_unknown_name_is_refused_before_anything_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["planing"]) == 2
    assert capsys.readouterr().err == f"no benchmark planing; there are {', '.join(ALL)}\n"
