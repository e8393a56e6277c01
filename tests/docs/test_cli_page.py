"""The commands of docs/cli.md print what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cpuplan.cli.main import SUBCOMMANDS, main
from cpuplan.model.pools import THREAD_VARIABLES
from tests.machines import write_machine

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "cli.md").read_text(encoding="utf-8")
IN_THE_POD = (DOCS / "in-the-pod.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^    \$ cpuplan (.*)\n((?:(?:    .*)?\n)+?)(?=\n?^\S)", PAGE, re.MULTILINE)


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trees that the page's commands name, in the working directory."""
    write_machine("h100-server", tmp_path / "h100-server")
    write_machine("small-vm", tmp_path / "small-vm")
    monkeypatch.chdir(tmp_path)


def test_the_page_has_examples() -> None:
    assert [command.split()[0] for command, _ in EXAMPLES] == ["show", "plan", "plan"]


@pytest.mark.usefixtures("trees")
@pytest.mark.parametrize(("command", "shown"), EXAMPLES)
def test_an_example_prints_what_the_page_says(command: str, shown: str, capfd: pytest.CaptureFixture[str]) -> None:
    main(shlex.split(command))

    output, complaint = capfd.readouterr()
    wanted = "\n".join(line.removeprefix("    ") for line in shown.rstrip("\n").split("\n"))
    assert (output + complaint).rstrip("\n") == wanted


def test_the_page_names_every_command() -> None:
    table = PAGE.split("| command |")[1].split("\n\n")[0]

    assert [name for name in SUBCOMMANDS if f"`{name}`" not in table] == []


def test_every_variable_that_is_set_is_documented() -> None:
    assert [v.name for v in THREAD_VARIABLES if f"`{v.name}`" not in IN_THE_POD] == []
