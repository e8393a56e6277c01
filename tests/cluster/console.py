"""Steps that say what they do and how long they took, and commands whose failure shows the end of their log."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.cluster import places

TAIL_LINES = 20
"""How many last lines of a failed command's output its error shows: a stack of wrapped Go errors fits."""


class ClusterError(RuntimeError):
    """A step failed; the text is one sentence, then the last lines of the log that tells why."""


def say(text: str) -> None:
    """Writes a line to standard error, so that standard output stays for what was asked for."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


@contextmanager
def step(sentence: str) -> Iterator[None]:
    """Says what is being done, and afterwards how many seconds it took."""
    say(f"==> {sentence}")
    start = time.monotonic()
    yield
    say(f"    done in {time.monotonic() - start:.1f} s")


def run(
    command: Sequence[str | Path],
    *,
    log: str,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    limit_seconds: float = 600.0,
) -> str:
    """What the command wrote to standard output, once it has succeeded.

    Args:
        log: name of the file in the logs folder to which the command line and both outputs are added.
        environment: variables on top of ours.

    Raises:
        ClusterError: no such program, a non-zero exit, or more than `limit_seconds`.
    """
    words = [str(word) for word in command]
    path = places.logs_dir() / f"{log}.log"
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, **(environment or {})},
            cwd=directory,
            timeout=limit_seconds,
            check=False,
        )
    except FileNotFoundError as error:
        raise ClusterError(f"{words[0]} is not installed, and is needed to run: {' '.join(words)}") from error
    except subprocess.TimeoutExpired as error:
        written = b"".join(part for part in (error.stdout, error.stderr) if isinstance(part, bytes))
        raise ClusterError(
            f"{' '.join(words[:4])} did not end within {limit_seconds:.0f} s; its last lines:\n"
            + tail(written.decode(errors="replace"))
        ) from error
    with path.open("a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(words)}\n{done.stdout}{done.stderr}\n")
    if done.returncode != 0:
        raise ClusterError(
            f"{' '.join(words[:4])} failed with exit code {done.returncode}; the last lines of {path}:\n"
            + tail(done.stdout + done.stderr)
        )
    return done.stdout


def tail(text: str) -> str:
    """The last TAIL_LINES lines, indented."""
    return "\n".join(f"    {line}" for line in text.rstrip().splitlines()[-TAIL_LINES:])
