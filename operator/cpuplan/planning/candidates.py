"""Every CPU of a node as a candidate of a decision: for each worker and for the result threads, taken or why not.

Where planning/explain.py tells the steps of a decision, this is its whole account: no CPU is left out. CPUs with
one fate and one reason are told together, and so are workers to which the same happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..model.cpulist import format_cpu_list, parse_cpu_list
from ..model.source import Source
from ..model.topology import HostTopology
from .explanation import MOST_SOURCES, NOTHING, Decision, siblings_source
from .searches import NO_CPUS, Fate, Search, Verdict, searches_of
from .setting import OFF

_ORDER = {fate: place for place, fate in enumerate(Fate)}


@dataclass(frozen=True, slots=True)
class Exclusion:
    """CPUs that are left out of masks, and why; nothing is said of those that a mask has, for want of others."""

    fate: Fate
    cpus: frozenset[int]
    text: str
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidates:
    """CPUs to which the same happened for the same reason.

    Attributes:
        workers: by number, those whose candidates they were.
        is_for_result: they were the result threads' candidates too; with no worker and without them, nobody's: there
            was nobody to look for.
    """

    workers: frozenset[int]
    is_for_result: bool
    cpus: frozenset[int]
    fate: Fate
    text: str
    sources: tuple[Source, ...]

    @property
    def whose(self) -> str:
        """For whom they were looked at, for people."""
        numbers = format_cpu_list(self.workers)
        parts = [f"worker{'s' if len(self.workers) > 1 else ''} {numbers}"] if numbers else []
        return ", ".join([*parts, "result threads"] if self.is_for_result else parts) or "anybody"

    def to_document(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "workers": sorted(self.workers),
            "result": self.is_for_result,
            "cpus": format_cpu_list(self.cpus),
            "fate": str(self.fate),
            "text": self.text,
            "sources": [source.to_document() for source in self.sources],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Candidates:
        """What `to_document` wrote.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: a field is missing or malformed.
        """
        return cls(
            workers=frozenset(int(worker) for worker in document["workers"]),
            is_for_result=bool(document["result"]),
            cpus=parse_cpu_list(document["cpus"]),
            fate=Fate(document["fate"]),
            text=str(document["text"]),
            sources=tuple(map(Source.from_document, document["sources"])),
        )


def candidates_of(
    decision: Decision,
    topology: HostTopology,
    *,
    neighbours: Mapping[str, frozenset[int]],
    exclusions: Sequence[Exclusion] = (),
    placed_by: Mapping[str, str] = NOTHING,
) -> tuple[Candidates, ...]:
    """What became of every online CPU, for each worker and the result threads; nothing where the setting is `off`.

    Args:
        decision: the plan to explain.
        topology: the host's, overrides applied.
        neighbours: the CPUs that other deployments of the node pin, by their names.
        exclusions: why CPUs are left out of the mask; of several that name a CPU the first counts.
        placed_by: by GPU address, the file of the administrator's override that placed it.
    """
    if decision.setting == OFF:
        return ()
    jury = _Jury(decision, topology, neighbours, exclusions)
    return _merged(each for search in searches_of(decision, topology, placed_by) for each in jury.judge(search))


def _merged(parts: Iterable[Candidates]) -> tuple[Candidates, ...]:
    """The parts, those together that differ only in whose candidates they are, where the first of them stood."""
    merged: dict[tuple[Any, ...], Candidates] = {}
    for part in parts:
        key = (part.cpus, part.fate, part.text, part.sources)
        before = merged.get(key, part)
        merged[key] = replace(
            before,
            workers=before.workers | part.workers,
            is_for_result=before.is_for_result or part.is_for_result,
        )
    return tuple(merged.values())


class _Jury:
    """What is known of every CPU whoever looks at it: what keeps it from masks, and who has it."""

    def __init__(
        self,
        decision: Decision,
        topology: HostTopology,
        neighbours: Mapping[str, frozenset[int]],
        exclusions: Sequence[Exclusion],
    ) -> None:
        self._decision = decision
        self._topology = topology
        outside = _outside(topology.online - decision.mask, exclusions)
        self._outside = sorted(outside, key=lambda pair: _ORDER[pair[0].fate])
        own = {f"worker {number}": cpus for number, cpus in enumerate(decision.steps)}
        if decision.result is not None:
            own["the result threads"] = frozenset({decision.result})
        mates = topology.core_mates()
        self._had = _verdicts(neighbours, mates, Fate.HELD, "pinned for {}", "CPUs that are pinned for {}")
        self._had |= _verdicts(
            own, mates, Fate.OWN, "taken by {} of this container", "CPUs that are taken by {} of this container"
        )

    def judge(self, search: Search) -> Iterator[Candidates]:
        """What became of every CPU in one search, by fate and reason."""
        positions: dict[int, int] = {}
        for position, core in enumerate(search.cores):
            for cpu in core:
                positions.setdefault(cpu, position)
        ended_at = min((positions[cpu] for cpu in search.own if cpu in positions), default=None)
        cpus: dict[str, set[int]] = {}
        verdicts: dict[str, Verdict] = {}
        for cpu in sorted(self._decision.mask):
            verdict = self._verdict(search, cpu, positions.get(cpu), ended_at)
            verdicts.setdefault(verdict.text, verdict)
            cpus.setdefault(verdict.text, set()).add(cpu)
        judged = [(verdicts[text], frozenset(cpus[text])) for text in cpus]
        for verdict, together in sorted(judged, key=lambda pair: _ORDER[pair[0].fate]):
            yield self._told(search, verdict, together)
        for verdict, together in self._outside:
            yield self._told(search, verdict, together)

    def _verdict(self, search: Search, cpu: int, position: int | None, ended_at: int | None) -> Verdict:
        """The first of these that is so.

        1. The search ended with it.
        2. It is not among the cores that were looked through.
        3. Another worker, the result threads or another deployment has it, or a CPU of its core.
        4. It is kept for something else.
        5. It could be had: nothing is pinned, or the search ended before it, or passed over it when it was held.
        """
        if cpu in search.own:
            return _TAKEN
        if position is None:
            return search.elsewhere
        return self._had.get(cpu) or self._of_a_free_cpu(search, position, ended_at)

    def _of_a_free_cpu(self, search: Search, position: int, ended_at: int | None) -> Verdict:
        if position >= len(search.cores) - search.kept_count:
            return search.kept
        if not _was_looked_at(search, position, ended_at):
            return search.others
        if not search.own:
            return _nothing_pinned(self._decision.reason)
        return _LATER if ended_at is not None and position > ended_at else _FREED

    def _told(self, search: Search, verdict: Verdict, cpus: frozenset[int]) -> Candidates:
        sources = verdict.sources
        most = {Fate.TAKEN: 1, Fate.SIBLING: MOST_SOURCES}.get(verdict.fate, 0)
        sources += tuple(siblings_source(self._topology, cpu) for cpu in sorted(cpus)[:most])
        workers = NO_CPUS if search.worker is None else frozenset({search.worker})
        return Candidates(workers, search.is_for_result, cpus, verdict.fate, verdict.text, sources)


_TAKEN = Verdict(Fate.TAKEN, "the search ended with them")
_LATER = Verdict(Fate.LATER, "free: the search ended before it came to them")
_FREED = Verdict(Fate.FREED, "free now, they were not when this plan was made; pins do not move")


def _nothing_pinned(reason: str) -> Verdict:
    return Verdict(Fate.FREE, f"free, but nothing is pinned ({reason})")


def _was_looked_at(search: Search, position: int, ended_at: int | None) -> bool:
    """Whether the core is a step of the search, or lies where the search went on core by core after its last step."""
    if position >= search.first and (position - search.first) % search.stride == 0:
        return True
    if ended_at is None or not search.first <= position < ended_at:
        return False
    last_step = ended_at - (ended_at - search.first) % search.stride
    return position > last_step


def _outside(cpus: frozenset[int], exclusions: Sequence[Exclusion]) -> Iterator[tuple[Verdict, frozenset[int]]]:
    """What keeps CPUs from the mask."""
    for exclusion in exclusions:
        here, cpus = cpus & exclusion.cpus, cpus - exclusion.cpus
        if here:
            yield Verdict(exclusion.fate, exclusion.text, exclusion.sources), here
    if cpus:
        yield Verdict(Fate.OUTSIDE, "they are not in the mask"), cpus


def _verdicts(
    pinned: Mapping[str, frozenset[int]],
    core_mates: Mapping[int, frozenset[int]],
    fate: Fate,
    text: str,
    of_mates: str,
) -> dict[int, Verdict]:
    """By CPU, who has it or another CPU of its core; a CPU that is pinned itself is told as that."""
    names = {cpu: name for name, cpus in pinned.items() for cpu in cpus}
    mates: dict[int, str] = {}
    for cpu, name in names.items():
        for mate in core_mates.get(cpu, ()):
            mates.setdefault(mate, name)
    direct = {name: Verdict(fate, text.format(name), _plan_source(fate, name, cpus)) for name, cpus in pinned.items()}
    beside = {name: Verdict(Fate.SIBLING, f"they share cores with {of_mates.format(name)}") for name in pinned}
    return {cpu: beside[name] for cpu, name in mates.items()} | {cpu: direct[name] for cpu, name in names.items()}


def _plan_source(fate: Fate, name: str, cpus: frozenset[int]) -> tuple[Source, ...]:
    """The neighbour's plan, which is what its pod shows; the own one is the one that is explained."""
    return (Source(f"plan of {name}", format_cpu_list(cpus)),) if fate is Fate.HELD else ()
