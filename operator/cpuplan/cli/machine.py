"""The machine that a command looks at: what sysfs says of it, and what a process there may use."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass

from ..host.root import HostRoot
from ..host.sysfs import read_topology
from ..model.cpulist import format_cpu_list
from ..model.source import Source
from ..model.topology import HostTopology
from ..planning.explain import Sentence, Topic
from ..planning.explanation import CPU_FOLDER
from ..planning.plannable import plannable_cpus
from .roots import Allowance, chosen_root, read_allowance


@dataclass(frozen=True, slots=True)
class PlannableMask:
    """The CPUs of a mask that a plan may use.

    Attributes:
        cpus: those CPUs.
        isolated: CPUs of the mask that the kernel command line keeps from the scheduler.
    """

    cpus: frozenset[int]
    isolated: frozenset[int]

    @property
    def note(self) -> str | None:
        """What becomes of the isolated CPUs; None where the mask has none."""
        if not self.isolated:
            return None
        names = format_cpu_list(self.isolated)
        if self.isolated <= self.cpus:
            return f"every CPU of the mask ({names}) is isolated from the scheduler, so they are planned on"
        return f"CPUs {names} of the mask are isolated from the scheduler, so no plan uses them"

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        """The note as a reason, with the file it comes from."""
        if self.note is None:
            return ()
        return (Sentence(Topic.INPUT, self.note, (Source(f"{CPU_FOLDER}/isolated", format_cpu_list(self.isolated)),)),)


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine at one moment: where it is read from, its topology, and what a process of it may use."""

    root: HostRoot
    topology: HostTopology
    allowance: Allowance

    @property
    def allowed(self) -> frozenset[int]:
        """The CPUs that a process may run on: its mask, else its cpuset, else every online CPU."""
        return self.allowance.mask or self.allowance.cpuset or self.topology.online

    def plannable(self, cpus: frozenset[int]) -> PlannableMask:
        """What of the CPUs a plan may use, by the rule of the node's agent."""
        online, isolated = self.topology.online, self.topology.isolated
        return PlannableMask(plannable_cpus(cpus, online=online, isolated=isolated), cpus & online & isolated)


def read_machine(namespace: argparse.Namespace, devices: Iterable[str | None] = ()) -> Machine:
    """The machine that the options name.

    Args:
        namespace: with the options of `add_root_arguments`.
        devices: PCI addresses whose kind is looked at whatever their class.

    Raises:
        HostReadError: the folder is no sysfs.
    """
    root = chosen_root(namespace)
    return Machine(root, read_topology(root, devices), read_allowance(root))
