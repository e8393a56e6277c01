"""The machine that a command looks at: what sysfs and the administrator say of it, and what a process there may use."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..host.override import OverrideFile, read_override
from ..host.root import HostRoot
from ..host.sysfs import read_topology
from ..model.cpulist import format_cpu_list
from ..model.errors import OverrideError
from ..model.source import Source
from ..model.topology import HostTopology
from ..planning.explain import Sentence, Topic
from ..planning.explanation import CPU_FOLDER
from ..planning.override import Difference, override_topology, sentences_of
from ..planning.plannable import plannable_cpus
from .errors import WRONG_USAGE, CliError
from .roots import Allowance, add_root_arguments, chosen_root, read_allowance


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
class AppliedOverride:
    """An administrator's word on where GPUs are.

    Attributes:
        source: what it says, and where it stands.
        differences: where it differs from sysfs.
    """

    source: OverrideFile
    differences: tuple[Difference, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """The differences as sentences, or that there are none."""
        return tuple(d.sentence for d in self.differences) or (f"{self.source.file} says what sysfs says",)

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        """The differences as reasons, as the agent gives them."""
        return sentences_of(self.differences)

    def to_document(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "file": str(self.source.file),
            "differences": [
                {"sentence": d.sentence, "sources": [source.to_document() for source in d.sources]}
                for d in self.differences
            ],
        }


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine at one moment.

    Attributes:
        root: where it is read from.
        topology: sysfs, with the override applied.
        allowance: what a process of it may use.
        override: where an administrator says that GPUs are, None where nobody says anything.
    """

    root: HostRoot
    topology: HostTopology
    allowance: Allowance
    override: AppliedOverride | None

    @property
    def placed_by(self) -> Mapping[str, str]:
        """By GPU address, the file of the override that places it."""
        return {} if self.override is None else self.override.source.placed_by

    @property
    def allowed(self) -> frozenset[int]:
        """The CPUs that a process may run on: its mask, else its cpuset, else every online CPU."""
        return self.allowance.mask or self.allowance.cpuset or self.topology.online

    def plannable(self, cpus: frozenset[int]) -> PlannableMask:
        """What of the CPUs a plan may use, by the rule of the node's agent."""
        online, isolated = self.topology.online, self.topology.isolated
        return PlannableMask(plannable_cpus(cpus, online=online, isolated=isolated), cpus & online & isolated)


def add_machine_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `add_root_arguments` and --topology-override."""
    add_root_arguments(parser)
    parser.add_argument(
        "--topology-override",
        type=Path,
        metavar="FILE",
        help="where GPUs are, above sysfs, as agent.topologyOverride has it: our TOML, or NCCL's topology XML",
    )


def read_machine(namespace: argparse.Namespace, devices: Iterable[str | None] = ()) -> Machine:
    """The machine that the options name.

    Args:
        namespace: with the options of `add_machine_arguments`.
        devices: PCI addresses whose kind is looked at whatever their class.

    Raises:
        HostReadError: the folder is no sysfs.
        CliError: the override cannot be used.
    """
    root = chosen_root(namespace)
    allowance = read_allowance(root)
    file = namespace.topology_override
    if file is None:
        return Machine(root, read_topology(root, devices), allowance, None)
    try:
        override = read_override(file)
    except OverrideError as error:
        raise CliError(str(error), WRONG_USAGE) from error
    result = override_topology(read_topology(root, [*devices, *override.placed_by]), override.placements)
    return Machine(root, result.topology, allowance, AppliedOverride(override, result.differences))
