"""Whole cores of a topology, in one step."""

from __future__ import annotations

from collections.abc import Iterable

from cpuplan.model.topology import HostTopology, with_core_mates


def whole_cores(topology: HostTopology, cpus: Iterable[int]) -> frozenset[int]:
    """The CPUs together with every hardware thread that shares a core with one of them."""
    return with_core_mates(cpus, topology.core_mates())
