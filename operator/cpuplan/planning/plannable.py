"""Which of the CPUs that a container may run on a plan may use."""

from __future__ import annotations

NO_CPUS: frozenset[int] = frozenset()


def plannable_cpus(
    cpus: frozenset[int], *, online: frozenset[int], isolated: frozenset[int], reserved: frozenset[int] = NO_CPUS
) -> frozenset[int]:
    """The CPUs of a mask or cpuset that a plan may use.

    1. Only online ones: the kernel runs nothing on others.
    2. None that is isolated (`isolcpus`): the kernel balances no thread onto it, and somebody has a use for it.
       Where all are isolated the container was given them on purpose, and they are used.
    3. None that the administrator reserves, even where that leaves nothing.
    """
    there = cpus & online
    return (there - isolated or there) - reserved
