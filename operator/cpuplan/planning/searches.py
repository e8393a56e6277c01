"""What each worker of a decision, and its result threads, looked through: cores in order, and which are its steps.

The searches follow planning/deployment.py: `auto` looks through the pool of a worker's GPU, a CPU number through the
cores of the mask from there up, and both from the last core down for the result threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from ..model import reasons
from ..model.source import Source
from ..model.topology import Core, HostGpu, HostTopology
from .cores import WHOLE_MASK, Geometry, Place
from .explanation import MOST_SOURCES, Decision, local_source, number_source
from .setting import AUTO

NO_CPUS: frozenset[int] = frozenset()


class Fate(StrEnum):
    """What became of CPUs as candidates, the most basic reason last."""

    TAKEN = "taken"
    OWN = "own"
    """Another worker, or the result threads, of the same container have them."""
    HELD = "held"
    """Another deployment pins them."""
    SIBLING = "sibling"
    """They share a core with CPUs that are taken or held."""
    FREED = "freed"
    """They were held when the plan was made, and are free now."""
    LATER = "later"
    """The search ended before it came to them."""
    KEPT = "kept"
    """They are for the other kind of threads, or the steps of other GPUs."""
    FREE = "free"
    """They could be had, but nothing is pinned."""
    BELOW = "below"
    """They lie below the CPU number of the setting."""
    REMOTE = "remote"
    """They are not among the CPUs of the worker's GPU."""
    ISOLATED = "isolated"
    RESERVED = "reserved"
    OUTSIDE = "outside-mask"


class Verdict(NamedTuple):
    """What became of a CPU, and why; each text belongs to one fate."""

    fate: Fate
    text: str
    sources: tuple[Source, ...] = ()


NOT_LOOKED_AT = Verdict(Fate.REMOTE, "they are not among the CPUs that are looked through")


@dataclass(frozen=True, slots=True)
class Search:
    """The cores that one worker, or the result threads, looked through.

    Attributes:
        worker: its number, None for the result threads and for nobody.
        is_for_result: it is the result threads' search.
        own: the CPUs that it ended with; empty without a pin.
        cores: in the order in which they were looked at.
        first, stride: its own steps are the cores first, first + stride, first + 2 x stride, …
        kept_count: of the cores, the last ones, which are not for it.
        kept: what is said of those.
        others: what is said of the cores between its steps.
        elsewhere: what is said of the CPUs of the mask that are in none of the cores.
    """

    worker: int | None
    is_for_result: bool
    own: frozenset[int]
    cores: tuple[Core, ...]
    first: int = 0
    stride: int = 1
    kept_count: int = 0
    kept: Verdict = NOT_LOOKED_AT
    others: Verdict = NOT_LOOKED_AT
    elsewhere: Verdict = NOT_LOOKED_AT


# Nobody has looked for cores before these were decided.
_BEFORE_ANY_SEARCH = frozenset(
    {
        reasons.UNSUPPORTED,
        reasons.NOTHING_TO_PLACE,
        reasons.INVALID_SETTING,
        reasons.OUTSIDE_MASK,
        reasons.CPU_GONE,
        reasons.WAITING_FOR_DEVICES,
        reasons.DEVICE_UNKNOWN,
        reasons.NO_DEVICE,
    }
)


def searches_of(decision: Decision, topology: HostTopology, placed_by: Mapping[str, str]) -> tuple[Search, ...]:
    """The search of each worker, then that of the result threads; a single one of nobody where none was made."""
    gpus = topology.gpus_like(decision.addresses)
    geometry = Geometry(gpus, topology.siblings_of)
    if decision.reason not in _BEFORE_ANY_SEARCH:
        if decision.setting == AUTO and decision.addresses:
            return tuple(_auto_searches(decision, geometry, gpus, placed_by))
        if decision.setting.isdecimal() and int(decision.setting) in decision.mask:
            return tuple(_number_searches(decision, geometry))
    return (Search(None, is_for_result=False, own=NO_CPUS, cores=geometry.cores(decision.mask)),)


def _auto_searches(
    decision: Decision, geometry: Geometry, gpus: tuple[HostGpu, ...], placed_by: Mapping[str, str]
) -> Iterator[Search]:
    places = [geometry.place(address, decision.mask) for address in decision.addresses]
    members = [_members(place, geometry, gpus, decision.mask) for place in places]
    pools = [
        _Pool(place, _elsewhere(sharing, place, decision.mask, placed_by))
        for place, sharing in zip(places, members, strict=True)
    ]
    for number, pool in enumerate(pools):
        yield pool.search(number, decision.steps[number] if number < len(decision.steps) else NO_CPUS)
    yield pools[0].search_from_the_top(NO_CPUS if decision.result is None else frozenset({decision.result}))


@dataclass(frozen=True, slots=True)
class _Pool:
    """The pool of a worker's GPU; one too small for its GPUs is not divided among them."""

    place: Place
    elsewhere: Verdict

    def search(self, worker: int, own: frozenset[int]) -> Search:
        """The search of one worker, from the pool's first core up."""
        whole = Search(worker, is_for_result=False, own=own, cores=self.place.cores, elsewhere=self.elsewhere)
        return self._divided(whole, "the last", "result threads", "counted from 0")

    def search_from_the_top(self, own: frozenset[int]) -> Search:
        """The search of the result threads, from the pool's last core down."""
        whole = Search(None, is_for_result=True, own=own, cores=self.place.cores[::-1], elsewhere=self.elsewhere)
        return self._divided(whole, "the first", "step threads", "counted from the top")

    def _divided(self, search: Search, end: str, threads: str, counted: str) -> Search:
        place = self.place
        if not place.is_large_enough:
            return search
        steps = f"every core {place.rank} + k x {place.count} there, {counted}"
        kept = f"{end} core of {place.name} is kept for {threads}"
        if place.count > 1:
            kept = f"{end} {place.count} cores of {place.name} are kept for {threads}, one for each GPU there"
        return replace(
            search,
            first=place.rank,
            stride=place.count,
            kept_count=place.count,
            kept=Verdict(Fate.KEPT, kept),
            others=Verdict(
                Fate.KEPT, f"they are the steps of the other GPUs of {place.name}: this one may take {steps}"
            ),
        )


def _number_searches(decision: Decision, geometry: Geometry) -> Iterator[Search]:
    cores = geometry.cores(decision.mask)
    start = cores.index(geometry.core(int(decision.setting), decision.mask))
    below = Verdict(Fate.BELOW, f"they lie below CPU {decision.setting}, from which on workers take cores")
    for number in range(len(decision.addresses)):
        own = decision.steps[number] if number < len(decision.steps) else NO_CPUS
        yield Search(number, is_for_result=False, own=own, cores=cores[start:], elsewhere=below)
    own = NO_CPUS if decision.result is None else frozenset({decision.result})
    yield Search(None, is_for_result=True, own=own, cores=cores[::-1])


def _members(place: Place, geometry: Geometry, gpus: tuple[HostGpu, ...], mask: frozenset[int]) -> tuple[HostGpu, ...]:
    """The GPUs that share a pool; none for the pool of a worker without a GPU."""
    if place.name == WHOLE_MASK:
        return ()
    return tuple(gpu for gpu in gpus if geometry.place(gpu.address, mask).name == place.name)


def _elsewhere(
    members: tuple[HostGpu, ...], place: Place, mask: frozenset[int], placed_by: Mapping[str, str]
) -> Verdict:
    """What is said of CPUs outside a pool: the pool's first GPU is the one whose local CPUs made it."""
    if not members:
        return NOT_LOOKED_AT
    if (members[0].local or NO_CPUS) & mask:
        first = (number_source(members[0], placed_by), local_source(members[0], placed_by))
        return Verdict(Fate.REMOTE, f"they are not in {place.name}, where the GPU is", first)
    sources = tuple(local_source(gpu, placed_by) for gpu in members[:MOST_SOURCES])
    return Verdict(
        Fate.REMOTE, "they are claimed for the GPUs that they are local to, and no CPU is local to this one", sources
    )
