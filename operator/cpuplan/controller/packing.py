"""Which ConfigMap holds which node's plans: pure, and the same for the same cluster.

A ConfigMap is one etcd object of at most 1.5 MiB and is sent whole to every watcher, so the index is split
long before that. A node stays in the ConfigMap where it is as long as it fits, so that one pod's change never
rewrites the others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

MOST_DATA_BYTES = 448 << 10
"""Keys and values of one ConfigMap. JSON escapes quotes: 448 KiB of plans are below 512 KiB in any encoding."""

_BETWEEN = ",\n"

NodeTexts = Mapping[str, str]
"""The data of one ConfigMap: node name to JSON text."""


@dataclass(frozen=True, slots=True)
class Share:
    """A part of one node's plans that goes into one ConfigMap; nearly always the only part."""

    node: str
    text: str

    @property
    def size_bytes(self) -> int:
        """What this share takes in a ConfigMap."""
        return len(self.node) + len(self.text.encode())


def node_shares(node: str, entries: Iterable[str], *, most_bytes: int = MOST_DATA_BYTES) -> list[Share]:
    """One node's plans as JSON objects, in as many shares as are needed to keep each within `most_bytes`.

    One entry per line, nothing after its comma: kubectl prints such a text as it is, and folds any other.

    Args:
        entries: members of a JSON object, each as `"key":value`.
    """
    shares: list[Share] = []
    held: list[str] = []
    held_bytes = 0
    room = most_bytes - len(node) - len(_object_of([]))
    for entry in sorted(entries):
        entry_bytes = len(entry.encode()) + len(_BETWEEN)
        if held and held_bytes + entry_bytes > room:
            shares.append(Share(node, _object_of(held)))
            held, held_bytes = [], 0
        held.append(entry)
        held_bytes += entry_bytes
    if held:
        shares.append(Share(node, _object_of(held)))
    return shares


def _object_of(entries: Sequence[str]) -> str:
    return "{\n" + _BETWEEN.join(entries) + "\n}\n"


def configmap_name(base: str, number: int) -> str:
    """`cpuplan`, `cpuplan-1`, `cpuplan-2`, …"""
    return base if number == 0 else f"{base}-{number}"


def configmap_number(base: str, name: str) -> int | None:
    """The inverse of `configmap_name`; None for a name that is not of the index."""
    if name == base:
        return 0
    number = name.removeprefix(f"{base}-")
    is_number = name.startswith(f"{base}-") and number.isascii() and number.isdecimal() and number[0] != "0"
    return int(number) if is_number else None


class _Bins:
    """ConfigMaps being filled: number to data, with sizes kept."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._data: dict[int, dict[str, str]] = {0: {}}
        self._sizes: dict[int, int] = {0: 0}

    def place_in(self, number: int, share: Share) -> bool:
        """Whether `share` went into that ConfigMap: it fits there, and the node has no other share there."""
        data = self._data.setdefault(number, {})
        size = self._sizes.setdefault(number, 0)
        if share.node in data or (data and size + share.size_bytes > self._most_bytes):
            return False
        data[share.node] = share.text
        self._sizes[number] = size + share.size_bytes
        return True

    def place_anywhere(self, share: Share) -> None:
        """Puts `share` into the first ConfigMap with room."""
        number = 0
        while not self.place_in(number, share):
            number += 1

    def named(self, base: str) -> dict[str, dict[str, str]]:
        """All that hold something, and the first one always."""
        return {
            configmap_name(base, number): self._data[number]
            for number in sorted(self._data)
            if self._data[number] or number == 0
        }

    def is_sparse(self) -> bool:
        """Whether half as many ConfigMaps would hold everything, so that moving all is worth it once."""
        used = sum(1 for data in self._data.values() if data)
        return used > 1 and 2 * sum(self._sizes.values()) <= (used - 1) * self._most_bytes


def pack(
    base: str,
    shares: Sequence[Share],
    current: Mapping[str, NodeTexts],
    *,
    most_bytes: int = MOST_DATA_BYTES,
) -> dict[str, dict[str, str]]:
    """The data of every ConfigMap of the index, by name; `base` is always among them.

    1. Every share goes where its node is now, if it fits, in the order of nodes.
    2. The others go to the first ConfigMap with room, in the same order.
    3. When half of the ConfigMaps would do, all shares are placed anew as if there were none.

    Args:
        shares: from `node_shares`, of all nodes.
        current: what the cluster holds now; only where a node is matters, not what is said of it.
    """
    ordered = sorted(shares, key=lambda share: (share.node, share.text))
    homes: dict[str, list[int]] = {}
    for name, data in current.items():
        number = configmap_number(base, name)
        if number is not None:
            for node in data:
                homes.setdefault(node, []).append(number)
    bins = _Bins(most_bytes)
    homeless = [
        share
        for share in ordered
        if not any(bins.place_in(number, share) for number in sorted(homes.get(share.node, ())))
    ]
    for share in homeless:
        bins.place_anywhere(share)
    if bins.is_sparse():
        bins = _Bins(most_bytes)
        for share in ordered:
            bins.place_anywhere(share)
    return bins.named(base)
