"""A failed step is one sentence and the end of its log."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cluster.console import TAIL_LINES, ClusterError, run


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPUPLAN_STATE", str(tmp_path))


def test_a_failing_commands_error_names_its_exit_code_and_shows_its_last_lines(tmp_path: Path) -> None:
    script = "print(*range(100), sep='\\n'); raise SystemExit(7)"
    with pytest.raises(ClusterError, match=r"failed with exit code 7; the last lines of .*/logs/step\.log:") as caught:
        run([sys.executable, "-c", script], log="step")
    assert str(caught.value).endswith("".join(f"\n    {number}" for number in range(100 - TAIL_LINES, 100)))
    assert "\n0\n1\n" in (tmp_path / "logs" / "step.log").read_text(encoding="utf-8")


def test_a_command_that_hangs_is_ended_at_its_limit_and_its_output_shown() -> None:
    script = "import time; print('so far', flush=True); time.sleep(300)"
    with pytest.raises(ClusterError, match=r"did not end within 1 s; its last lines:\n    so far"):
        run([sys.executable, "-c", script], log="step", limit_seconds=1)


def test_a_missing_program_is_named_with_what_needed_it() -> None:
    with pytest.raises(
        ClusterError, match="no-such-program is not installed, and is needed to run: no-such-program up"
    ):
        run(["no-such-program", "up"], log="step")
