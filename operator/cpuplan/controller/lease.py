"""Who leads: the decision about a Lease, pure, as client-go's leader election makes it.

Clocks of different machines never meet: a foreign leader is given its whole lease duration by *our* clock, from
the moment when we saw its record change, whatever times the record names.
Source: k8s.io/client-go/tools/leaderelection.
"""

from dataclasses import dataclass
from enum import Enum

from ..kube.answers import JsonObject
from .announcements import micro_time


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """What a Lease says.

    Attributes:
        holder: identity of the leader; empty when it was released.
        duration_seconds: how long the holder leads after each renewal.
        acquired: when the present holder took it, as the API writes it.
        transitions: how often the holder changed.
        resource_version: of the Lease; changes with every renewal.
    """

    holder: str
    duration_seconds: float
    acquired: str
    transitions: int
    resource_version: str


@dataclass(frozen=True, slots=True)
class Sighting:
    """A record and when, by our clock, it was first seen."""

    record: LeaseRecord
    seen_at: float


class Move(Enum):
    """What a candidate does next."""

    CREATE = "create"
    RENEW = "renew"
    TAKE = "take"
    WAIT = "wait"


def sighting_after(previous: Sighting | None, record: LeaseRecord, now: float) -> Sighting:
    """The previous sighting while the record stays the same, else a new one."""
    return previous if previous is not None and previous.record == record else Sighting(record, now)


def next_move(sighting: Sighting | None, identity: str, now: float) -> Move:
    """What the candidate `identity` does, `now` by the clock of the sighting.

    1. No Lease: create it.
    2. It is ours: renew (also after a restart under the same identity: that process is gone).
    3. Released, or unchanged for its whole duration: take it.
    4. Else wait.
    """
    if sighting is None:
        return Move.CREATE
    record = sighting.record
    if record.holder == identity:
        return Move.RENEW
    if not record.holder or now - sighting.seen_at >= record.duration_seconds:
        return Move.TAKE
    return Move.WAIT


def lease_record(lease: JsonObject) -> LeaseRecord:
    """The record in a Lease; odd or missing fields count as released."""
    spec = lease.get("spec") or {}
    return LeaseRecord(
        holder=str(spec.get("holderIdentity") or ""),
        duration_seconds=float(spec.get("leaseDurationSeconds") or 0),
        acquired=str(spec.get("acquireTime") or ""),
        transitions=int(spec.get("leaseTransitions") or 0),
        resource_version=str((lease.get("metadata") or {}).get("resourceVersion", "")),
    )


def lease_object(
    name: str, record: LeaseRecord | None, move: Move, identity: str, *, duration_seconds: int, wall: float
) -> JsonObject:
    """The Lease to write for a move.

    Args:
        record: the present one, None where there is none.
        wall: seconds since the epoch; only for people who read the Lease.
    """
    metadata: JsonObject = {"name": name}
    acquired, transitions = micro_time(wall), 0
    if record is not None:
        metadata["resourceVersion"] = record.resource_version
        acquired = (record.acquired or acquired) if move is Move.RENEW else acquired
        transitions = record.transitions + (0 if move is Move.RENEW else 1)
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": {
            "holderIdentity": identity,
            "leaseDurationSeconds": duration_seconds,
            "acquireTime": acquired,
            "renewTime": micro_time(wall),
            "leaseTransitions": transitions,
        },
    }
