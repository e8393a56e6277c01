"""The Lease in an API server: taken, renewed, lost, given back."""

import queue
import threading
from collections.abc import Callable

import pytest

from cpuplan.controller.leader import Leadership, LeaseTerms
from cpuplan.kube.client import KubeClient
from cpuplan.kube.errors import KubeError
from tests.controller.conftest import FakeClock
from tests.fakeapi import FakeApi

LEASE = "/apis/coordination.k8s.io/v1/namespaces/cpuplan/leases/cpuplan-operator"


def candidate(
    client: KubeClient, clock: FakeClock, identity: str = "operator-0", *, retry_seconds: float = 10
) -> Leadership:
    """A candidate for a lease of 30 s."""
    terms = LeaseTerms("cpuplan", "cpuplan-operator", identity, 30, retry_seconds)
    return Leadership(client, terms, clock=clock, wall=lambda: 0)


def holder(api: FakeApi) -> str:
    """Who holds the Lease."""
    lease = api.object(LEASE)
    assert lease is not None
    return str(lease["spec"]["holderIdentity"])


class Loss:
    """The end of a leadership, as told from the renewing thread."""

    def __init__(self) -> None:
        self._told: queue.Queue[str] = queue.Queue()
        self.note = self._told.put

    def sentence(self) -> str:
        """Why, once it is told."""
        return self._told.get(timeout=10)


def test_the_first_candidate_leads_until_its_lease_ends(api: FakeApi, client: KubeClient, clock: FakeClock) -> None:
    leader = candidate(client, clock)
    assert not leader.is_leading()
    assert leader.try_once()
    clock.now += 29.9
    assert leader.is_leading()
    clock.now += 0.1
    assert not leader.is_leading()


def test_a_lease_that_is_lost_while_its_end_is_looked_at_ends_no_thread(
    api: FakeApi, client: KubeClient, clock: FakeClock
) -> None:
    """The guard asks in one thread what the renewal writes in another."""

    renewals: list[Callable[[], bool]] = []

    def renew_and_tell() -> float:
        while renewals:
            assert not renewals.pop()()
        return clock()

    leader = Leadership(client, LeaseTerms("cpuplan", "cpuplan-operator", "operator-0"), clock=renew_and_tell)
    assert leader.try_once()
    api.patch(LEASE, {"spec": {"holderIdentity": "operator-1"}})
    renewals.append(leader.try_once)
    leader.is_leading()
    assert renewals == []
    assert not leader.is_leading()


def test_a_second_candidate_waits_while_the_first_renews(api: FakeApi, client: KubeClient, clock: FakeClock) -> None:
    first, second = candidate(client, clock, "operator-0"), candidate(client, clock, "operator-1")
    assert first.try_once()
    assert not second.try_once()
    clock.now += 25
    assert first.try_once()
    clock.now += 25
    assert not second.try_once()
    assert holder(api) == "operator-0"


def test_a_second_candidate_takes_over_from_a_silent_leader(api: FakeApi, client: KubeClient, clock: FakeClock) -> None:
    first, second = candidate(client, clock, "operator-0"), candidate(client, clock, "operator-1")
    assert first.try_once()
    assert not second.try_once()
    clock.now += 30
    assert not first.is_leading()
    assert second.try_once()
    assert not first.try_once()
    assert holder(api) == "operator-1"


def test_a_restarted_container_of_the_same_pod_leads_at_once(client: KubeClient, clock: FakeClock) -> None:
    candidate(client, clock, "operator-0").try_once()
    assert candidate(client, clock, "operator-0").try_once()


def test_of_two_that_see_the_same_free_lease_one_leads(api: FakeApi, client: KubeClient, clock: FakeClock) -> None:
    api.fail(409, method="POST")
    assert not candidate(client, clock).try_once()


def test_a_lease_that_was_given_back_is_free_at_once(api: FakeApi, client: KubeClient, clock: FakeClock) -> None:
    first, second = candidate(client, clock, "operator-0"), candidate(client, clock, "operator-1")
    first.try_once()
    first.release()
    assert not first.is_leading()
    assert second.try_once()


def test_a_lease_of_somebody_else_is_not_given_back(api: FakeApi, client: KubeClient, clock: FakeClock) -> None:
    candidate(client, clock, "operator-1").try_once()
    candidate(client, clock, "operator-0").release()
    assert holder(api) == "operator-1"


def test_an_api_server_that_fails_does_not_end_a_lease_before_its_time(
    api: FakeApi, client: KubeClient, clock: FakeClock
) -> None:
    leader = candidate(client, clock)
    leader.try_once()
    api.fail(500, method="GET")
    with pytest.raises(KubeError):
        leader.try_once()
    assert leader.is_leading()


def test_the_loss_of_the_lease_is_told_with_its_new_holder(api: FakeApi, client: KubeClient, clock: FakeClock) -> None:
    leader = candidate(client, clock, retry_seconds=0.01)
    leader.try_once()
    loss = Loss()
    api.patch(LEASE, {"spec": {"holderIdentity": "operator-1"}})
    leader.keep(loss.note)
    assert loss.sentence() == "lease cpuplan/cpuplan-operator is held by operator-1 now"


def test_a_lease_that_cannot_be_renewed_is_lost_when_it_ends(
    api: FakeApi, client: KubeClient, clock: FakeClock
) -> None:
    leader = candidate(client, clock, retry_seconds=0.01)
    leader.try_once()
    api.fail(500, times=1000)
    clock.now += 30
    loss = Loss()
    leader.keep(loss.note)
    assert loss.sentence() == "lease cpuplan/cpuplan-operator could not be renewed for 30 s"


def test_a_lease_ends_in_time_while_no_renewal_gets_an_answer(client: KubeClient, clock: FakeClock) -> None:
    leader = candidate(client, clock, retry_seconds=3600)
    leader.try_once()
    loss = Loss()
    clock.now += 30
    leader.keep(loss.note)
    assert loss.sentence() == "lease cpuplan/cpuplan-operator could not be renewed for 30 s"


def test_a_candidate_that_never_held_the_lease_has_nothing_to_give_back(
    api: FakeApi, client: KubeClient, clock: FakeClock
) -> None:
    candidate(client, clock).release()
    assert api.requests == []


def test_waiting_ends_with_the_lease_or_with_stop(api: FakeApi, client: KubeClient, clock: FakeClock) -> None:
    waiting = candidate(client, clock, "operator-1")
    candidate(client, clock, "operator-0").try_once()
    ended: list[bool] = []
    thread = threading.Thread(target=lambda: ended.append(waiting.wait_until_leading()))
    thread.start()
    api.wait_until(lambda: len(api.requests_of("GET", "/leases/")) >= 2)
    waiting.stop()
    thread.join(10)
    assert ended == [False]
    assert candidate(client, clock, "operator-0").wait_until_leading()
