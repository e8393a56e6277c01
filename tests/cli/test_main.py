"""The command line itself: help, versions, errors in one sentence, imports only where they are used."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import cpuplan as package
from cpuplan.cli.main import SUBCOMMANDS, main
from tests.cli.answers import Answer
from tests.cli.conftest import REPOSITORY

Command = Callable[..., Answer]


def test_the_version_is_the_packages(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])

    assert (left.value.code, capfd.readouterr().out) == (0, f"cpuplan {package.__version__}\n")


def test_help_names_every_command(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])

    output = capfd.readouterr().out
    assert left.value.code == 0
    assert [name for name in SUBCOMMANDS if f"\n    {name} " not in output] == []


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_command_has_help(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([name, "--help"])

    output = capfd.readouterr().out
    assert (left.value.code, output.startswith(f"usage: cpuplan {name} ")) == (0, True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        pytest.param([], "cpuplan: the following arguments are required: COMMAND; see cpuplan --help", id="nothing"),
        pytest.param(
            ["--banana"],
            "cpuplan: unrecognized argument --banana: a command comes first; see cpuplan --help",
            id="only a flag",
        ),
        pytest.param(["--banana", "show"], "cpuplan: unrecognized argument --banana: a command", id="flag first"),
        pytest.param(["banana"], "cpuplan: argument COMMAND: invalid choice: 'banana'", id="unknown command"),
        pytest.param(
            ["show", "--banana"],
            "cpuplan show: unrecognized arguments: --banana; see cpuplan show --help",
            id="unknown flag",
        ),
        pytest.param(["show", "--sysfs"], "cpuplan show: unrecognized arguments: --sysfs; ", id="shortened flag"),
        pytest.param(["show", "-o", "yaml"], "cpuplan show: argument -o/--output: invalid choice", id="output form"),
        pytest.param(
            ["plan", "--mask", "banana"],
            "cpuplan plan: argument --mask: CPU list 'banana': 'banana' is not a CPU number or a range like 0-3; ",
            id="malformed mask",
        ),
        pytest.param(
            ["plan", "--mask", "3-1"], "cpuplan plan: argument --mask: CPU list '3-1' names no CPU; ", id="empty"
        ),
        pytest.param(
            ["plan", "--quota", "lots"], "cpuplan plan: argument --quota: 'lots' is no number of CPUs; ", id="quota"
        ),
        pytest.param(
            ["plan", "--quota", "0"], "cpuplan plan: argument --quota: '0' is no number of CPUs; ", id="zero quota"
        ),
        pytest.param(
            ["plan", "--quota", "nan"], "cpuplan plan: argument --quota: 'nan' is no number of CPUs; ", id="nan"
        ),
        pytest.param(
            ["plan", "--workers", "0,x", "--device", "1b:00.0"],
            "cpuplan plan: --workers 0,x: 'x' is neither a device's place (0, 1, …) nor -",
            id="malformed workers",
        ),
        pytest.param(
            ["plan", "--workers", "0,1", "--device", "1b:00.0"],
            "cpuplan plan: --workers 0,1: asks for device 1, 1 were given",
            id="worker without device",
        ),
        pytest.param(
            ["plan", "--workers", "-,-"],
            "cpuplan plan: argument --workers: expected one argument (one that begins with - is written after an =); ",
            id="workers without devices",
        ),
        pytest.param(
            ["plan", "--device", "cuda:0"],
            "cpuplan plan: --device 'cuda:0' is no PCI address: expected a form like 0000:1b:00.0 (cpuplan show lists",
            id="device by another name",
        ),
        pytest.param(["plan", "--device", ""], "cpuplan plan: --device '' is no PCI address: ", id="empty device"),
        pytest.param(["env", "--threads", "0"], "cpuplan env: argument --threads: '0' is no whole", id="no threads"),
        pytest.param(["run"], "cpuplan run: no command to run: give one after --", id="nothing to run"),
        pytest.param(["run", "--", ""], "cpuplan run: no command to run: give one after --", id="an empty command"),
        pytest.param(["init", "--wait-seconds", "-1"], "cpuplan init: argument --wait-seconds: ", id="negative wait"),
        pytest.param(["verify", "--pid", "1", "--all"], "cpuplan verify: argument --all: not allowed with", id="both"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(cpuplan: Command, words: list[str], sentence: str) -> None:
    answer = cpuplan(*words)

    assert (answer.exit_code, answer.output) == (2, "")
    assert answer.sentence.startswith(sentence)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        pytest.param(
            ["show", "--sysfs-root", "/nowhere"],
            ["cpuplan show: /nowhere is no readable sysfs", "No such file or directory", "--sysfs-root"],
            id="missing root",
        ),
        pytest.param(
            ["plan", "--sysfs-root", "/etc/passwd"], ["/etc/passwd is no readable sysfs", "Not a directory"], id="file"
        ),
        pytest.param(
            ["plan", "--setting", "banana"],
            ["cpuplan plan: step_thread_core is 'banana'", "off, auto or a CPU number"],
            id="setting",
        ),
        pytest.param(
            ["plan", "--setting", "9", "--mask", "0"],
            ["step_thread_core 9: CPU 9 is outside the mask (0)"],
            id="outside the mask",
        ),
        pytest.param(
            ["verify", "--plan-dir", "/nowhere"],
            ["cpuplan verify: there is no plan to compare with", "/nowhere/plan cannot be read"],
            id="no plan",
        ),
    ],
)
def test_what_cannot_be_done_is_one_sentence(cpuplan: Command, words: list[str], parts: list[str]) -> None:
    answer = cpuplan(*words)

    assert (answer.exit_code, answer.output) == (1, "")
    assert [part for part in parts if part not in answer.sentence] == []


@pytest.mark.parametrize(
    ("name", "words", "package_name"),
    [
        ("agent", ["--node-name", "gpu-1", "--metrics-address", "127.0.0.1:0"], "grpc"),
        ("operator", ["--namespace", "cpuplan", "--metrics-address", "127.0.0.1:0"], "kopf"),
    ],
)
def test_a_process_whose_packages_are_missing_says_which_extra_has_them(
    cpuplan_process: Command, tmp_path: Path, name: str, words: list[str], package_name: str
) -> None:
    """The finder hides the package as if it were not installed."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] == {package_name!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
    )

    answer = cpuplan_process(name, *words, PYTHONPATH=f"{tmp_path}:{REPOSITORY / 'operator'}:{REPOSITORY}")

    assert answer.exit_code == 2
    assert answer.sentence == (
        f"cpuplan {name} needs the package {package_name}, which is not installed: pip install 'cpuplan[{name}]'"
    )


def test_kubectl_calls_it_by_its_own_name(cpuplan: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/local/bin/kubectl-cpuplan"])

    assert cpuplan("show", "--banana").sentence == (
        "kubectl cpuplan show: unrecognized arguments: --banana; see kubectl cpuplan show --help"
    )


def test_a_command_loads_no_package_outside_the_standard_library_and_no_other_command() -> None:
    """`-S` leaves site-packages out: what the command needs is the standard library and cpuplan."""
    script = (
        "import sys\n"
        f"sys.path[:0] = [{str(REPOSITORY / 'operator')!r}]\n"
        "from cpuplan.cli.main import main\n"
        "exit_code = main(['plan', '--setting', 'off'])\n"
        "loaded = {name.split('.')[2] for name in sys.modules if name.startswith('cpuplan.cli.')}\n"
        "print(exit_code, sorted(loaded & {'show', 'run', 'env', 'verify', 'init', 'explain'}), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True, check=False)

    assert done.stderr == "0 []\n"


def test_a_reader_that_leaves_early_gets_no_traceback(server: object) -> None:
    script = f"{sys.executable} -m cpuplan show --why --sysfs-root {server.sys} | head -1"  # type: ignore[attr-defined]
    done = subprocess.run(
        ["sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": f"{REPOSITORY / 'operator'}", "PATH": "/usr/bin:/bin"},
    )

    assert (done.stdout.count("\n"), done.stderr) == (1, "")
