"""What every source file keeps to."""

import ast
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
FILES = sorted(
    path.relative_to(REPOSITORY)
    for folder in ("operator/cpuplan", "hostflag_native")
    for path in (REPOSITORY / folder).rglob("*.py")
)

LONGEST_MODULE = 300
LONGEST_FUNCTION = 50
LONG_FOR_A_REASON = "longer than most"
"""What a docstring says, with the reason, where a module or function is longer than that."""

VAGUE_NAMES = {"utils", "util", "helpers", "common", "manager", "data", "info", "misc", "tools"}


def parse(path: Path) -> ast.Module:
    return ast.parse((REPOSITORY / path).read_text(encoding="utf-8"))


TREES = {path: parse(path) for path in FILES}


def docstring(path: Path) -> str:
    return ast.get_docstring(TREES[path]) or ""


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its signature and docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def called_names(path: Path) -> set[str]:
    """The names of all functions and methods that a file calls."""
    calls = [node.func for node in ast.walk(TREES[path]) if isinstance(node, ast.Call)]
    return {call.id if isinstance(call, ast.Name) else getattr(call, "attr", "") for call in calls}


def in_rooms(*rooms: str) -> list[Path]:
    """The files of some packages of cpuplan."""
    return [path for path in FILES if path.parts[0] == "operator" and path.parts[2] in rooms]


def test_every_module_says_what_it_is_for() -> None:
    assert [str(path) for path in FILES if not docstring(path)] == []


def test_every_module_is_short_or_says_why_not() -> None:
    lengths = {path: len((REPOSITORY / path).read_text(encoding="utf-8").splitlines()) for path in FILES}
    too_long = [path for path, count in lengths.items() if count > LONGEST_MODULE]
    assert [str(path) for path in too_long if LONG_FOR_A_REASON not in docstring(path)] == []


def test_every_function_is_short_or_says_why_not() -> None:
    functions = [
        (path, node)
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert [
        f"{path} {function.name}"
        for path, function in functions
        if code_lines(function) > LONGEST_FUNCTION and LONG_FOR_A_REASON not in (ast.get_docstring(function) or "")
    ] == []


def test_every_file_is_named_by_what_it_defines() -> None:
    assert [str(path) for path in FILES if VAGUE_NAMES & {part.removesuffix(".py") for part in path.parts}] == []


def test_every_room_says_what_belongs_there_and_what_it_may_import() -> None:
    rooms = [path for path in FILES if path.name == "__init__.py" and path != Path("operator/cpuplan/__init__.py")]
    assert [str(path) for path in rooms if not {"elong", "ay import"} <= _words(docstring(path))] == []


def _words(text: str) -> set[str]:
    return {wanted for wanted in ("elong", "ay import") if wanted in text}


def test_planning_and_model_call_nothing_that_opens_a_file() -> None:
    """The import contract forbids the modules; builtins and methods are looked for here."""
    openers = {"open", "input", "exec", "eval", "__import__", "read_text", "write_text", "read_bytes"}
    assert [str(path) for path in in_rooms("planning", "model") if called_names(path) & openers] == []


def test_the_library_never_prints_or_ends_the_process() -> None:
    forbidden = {"print", "exit", "_exit", "abort", "basicConfig"}
    rooms = in_rooms("model", "planning", "host", "inprocess")
    assert [str(path) for path in rooms if called_names(path) & forbidden] == []


# The kernel's trees themselves, a reader whose default the specification fixes, names for explanations, and flags.
NAMES_TREES = {"host/root.py", "host/cgroup.py", "planning/explanation.py", "agent/settings.py"}


def test_paths_of_the_kernels_trees_come_from_host_root() -> None:
    """Nobody else spells a path below /sys or /proc."""
    spelled = [
        f"{path}: {node.value!r}"
        for path in FILES
        if path.parts[0] == "operator" and str(Path(*path.parts[2:])) not in NAMES_TREES
        for node in ast.walk(TREES[path])
        if isinstance(node, ast.Constant) and str(node.value).startswith(("/sys/", "/proc/"))
    ]
    assert spelled == []
