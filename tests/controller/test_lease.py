"""Whose turn it is: clocks of others do not matter, released and silent leaders are replaced."""

import dataclasses

import pytest

from cpuplan.controller.lease import LeaseRecord, Move, Sighting, lease_object, lease_record, next_move, sighting_after

THEIRS = LeaseRecord("operator-1", 30, "2026-05-04T10:00:00.000000Z", 4, "17")
OURS = dataclasses.replace(THEIRS, holder="operator-0")


@pytest.mark.parametrize(
    ("sighting", "now", "move"),
    [
        (None, 0, Move.CREATE),
        (Sighting(OURS, 0), 0, Move.RENEW),
        (Sighting(OURS, 0), 1000, Move.RENEW),
        (Sighting(THEIRS, 0), 29.9, Move.WAIT),
        (Sighting(THEIRS, 0), 30, Move.TAKE),
        (Sighting(dataclasses.replace(THEIRS, holder=""), 0), 0, Move.TAKE),
    ],
    ids=["no lease", "ours", "ours for long", "theirs and fresh", "theirs and silent", "given back"],
)
def test_the_next_move(sighting: Sighting | None, now: float, move: Move) -> None:
    assert next_move(sighting, "operator-0", now) is move


def test_a_renewal_by_the_leader_starts_its_time_anew() -> None:
    renewed = dataclasses.replace(THEIRS, resource_version="18")
    sighting = sighting_after(sighting_after(None, THEIRS, 0), renewed, 25)
    assert next_move(sighting, "operator-0", 54.9) is Move.WAIT


def test_an_unchanged_record_keeps_the_time_of_its_first_sight() -> None:
    sighting = sighting_after(sighting_after(None, THEIRS, 0), THEIRS, 25)
    assert next_move(sighting, "operator-0", 30) is Move.TAKE


def test_taking_the_lease_counts_a_transition_and_a_new_time() -> None:
    spec = lease_object("l", THEIRS, Move.TAKE, "operator-0", duration_seconds=30, wall=0)["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("operator-0", 5)
    assert spec["acquireTime"] == spec["renewTime"] == "1970-01-01T00:00:00.000000Z"


def test_renewing_keeps_the_time_of_taking() -> None:
    lease = lease_object("l", OURS, Move.RENEW, "operator-0", duration_seconds=30, wall=0)
    assert (lease["spec"]["acquireTime"], lease["spec"]["leaseTransitions"]) == (OURS.acquired, 4)
    assert lease["metadata"] == {"name": "l", "resourceVersion": "17"}


@pytest.mark.parametrize("lease", [{}, {"spec": None}, {"spec": {"holderIdentity": None}}])
def test_a_lease_that_says_nothing_is_free(lease: dict[str, object]) -> None:
    assert next_move(Sighting(lease_record(lease), 0), "operator-0", 0) is Move.TAKE
