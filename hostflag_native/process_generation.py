"""Tells whether an object was made in this process or inherited from a parent through fork."""

import os

_generation = 0


def _count_fork() -> None:
    global _generation  # noqa: PLW0603  one counter per process is the point
    _generation += 1


os.register_at_fork(after_in_child=_count_fork)


def process_generation() -> int:
    """How many forks lie between the first process and this one.

    An object that notes it when made is inherited exactly when the number differs later. Process ids would not do:
    in a new PID namespace parent and child can both be 1.
    """
    return _generation
