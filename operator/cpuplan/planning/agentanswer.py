"""What an agent answers when it is asked why a pod's plan is what it is: as values, and as JSON both ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..model.podplan import ContainerPlan, PodPlan
from .candidates import Candidates
from .explanation import Sentence

EXPLANATION_VERSION = 1
"""Version of the JSON form; raised when a reader of the old form would misunderstand the new."""


@dataclass(frozen=True, slots=True)
class ContainerExplained:
    """One planned container.

    Attributes:
        plan: as the agent has decided it, its sentences uncut.
        sentences: its reasons, with files and values; what was passed over stands in `candidates`.
        candidates: what became of every online CPU; empty where the setting is `off`.
    """

    name: str
    plan: ContainerPlan
    sentences: tuple[Sentence, ...]
    candidates: tuple[Candidates, ...]

    def to_document(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "name": self.name,
            "plan": self.plan.to_document(),
            "reasons": [sentence.to_document() for sentence in self.sentences],
            "candidates": [candidates.to_document() for candidates in self.candidates],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ContainerExplained:
        """What `to_document` wrote.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: a field is missing or malformed.
        """
        return cls(
            name=str(document["name"]),
            plan=ContainerPlan.from_document(document["plan"]),
            sentences=tuple(map(Sentence.from_document, document["reasons"])),
            candidates=tuple(map(Candidates.from_document, document["candidates"])),
        )


@dataclass(frozen=True, slots=True)
class PodExplained:
    """One pod as its node's agent last saw and planned it.

    Attributes:
        node: the agent's.
        seconds_old: how long ago it planned the node.
        uid: the pod's; empty where the agent knows no such pod.
        generation: of the plan that it decided; 0 where it makes none for the pod.
        notes: why there is no plan, or why the pod does not show it (yet); empty where all is well.
        containers: the planned ones, in the pod's order.
    """

    node: str
    seconds_old: float
    uid: str
    generation: int
    notes: tuple[str, ...]
    containers: tuple[ContainerExplained, ...] = ()

    def is_about(self, plan: PodPlan) -> bool:
        """Whether it explains this very plan of its pod."""
        return (self.uid, self.generation) == (plan.pod_uid, plan.generation)

    def container(self, name: str) -> ContainerExplained | None:
        """One container, None where it is not planned."""
        return next((container for container in self.containers if container.name == name), None)

    def to_document(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "version": EXPLANATION_VERSION,
            "node": self.node,
            "secondsOld": self.seconds_old,
            "podUID": self.uid,
            "generation": self.generation,
            "notes": list(self.notes),
            "containers": [container.to_document() for container in self.containers],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> PodExplained:
        """What `to_document` wrote.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: a field is missing or malformed.
        """
        return cls(
            node=str(document["node"]),
            seconds_old=float(document["secondsOld"]),
            uid=str(document["podUID"]),
            generation=int(document["generation"]),
            notes=tuple(map(str, document["notes"])),
            containers=tuple(map(ContainerExplained.from_document, document["containers"])),
        )
