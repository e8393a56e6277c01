"""Keeps the operator's Lease: waits for it, renews it in a thread of its own, gives it back at the end."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from ..kube.client import KubeClient
from ..kube.errors import ConflictError, KubeError, NotFoundError
from ..kube.paths import lease_path, leases_path
from .lease import LeaseRecord, Move, Sighting, lease_object, lease_record, next_move, sighting_after

LOG = logging.getLogger(__name__)


def boot_seconds() -> float:
    """Seconds since the machine started, suspended time included: a leader that slept must know that it did."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """Which Lease, and its times.

    Attributes:
        duration_seconds: how long others wait for a silent leader.
        retry_seconds: between renewals, and between tries of those who wait.
    """

    namespace: str
    name: str
    identity: str
    duration_seconds: int = 30
    retry_seconds: float = 10.0


class Leadership:
    """One candidate for one Lease.

    Every request must end well within the lease: give a client without retries.
    """

    def __init__(
        self,
        client: KubeClient,
        terms: LeaseTerms,
        *,
        clock: Callable[[], float] = boot_seconds,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._terms = terms
        self._clock = clock
        self._wall = wall
        self._sighting: Sighting | None = None
        self._leads_until: float | None = None
        self._may_hold = False
        self._stop = threading.Event()
        self._telling = threading.Lock()
        self._renewer: threading.Thread | None = None

    def is_leading(self) -> bool:
        """Whether nobody else can lead at this moment: the last renewal was less than the lease's duration ago."""
        until = self._leads_until  # the renewing thread may set it meanwhile
        return until is not None and self._clock() < until

    def try_once(self) -> bool:
        """Takes or renews the Lease if that is our turn; whether we lead afterwards.

        Raises:
            KubeError: the API server refused or did not answer.
        """
        started = self._clock()
        record = self._read()
        self._sighting = None if record is None else sighting_after(self._sighting, record, started)
        move = next_move(self._sighting, self._terms.identity, started)
        if move is Move.WAIT:
            self._leads_until = None
            return False
        self._may_hold = True
        try:
            self._write(record, move)
        except ConflictError:
            return self.is_leading()  # somebody was faster; the next try sees who
        # Counted from before the request: others count from when they saw its effect, which is later.
        self._leads_until = started + self._terms.duration_seconds
        return True

    def wait_until_leading(self) -> bool:
        """Returns True as soon as we lead, False when `stop` was called before."""
        told_holder = ""
        while not self._stop.is_set():
            try:
                if self.try_once():
                    LOG.info("leading lease=%s/%s identity=%s", *self._where())
                    return True
                holder = "" if self._sighting is None else self._sighting.record.holder
                if holder != told_holder:
                    LOG.info("standing by lease=%s/%s identity=%s holder=%s", *self._where(), holder)
                    told_holder = holder
            except KubeError as error:
                LOG.warning("no answer about the lease lease=%s/%s identity=%s error=%r", *self._where(), str(error))
            self._stop.wait(self._terms.retry_seconds)
        return False

    def keep(self, on_lost: Callable[[str], None]) -> None:
        """Renews until `stop`; `on_lost` is told once, from a thread, why we lead no longer.

        It is told when the lease ends, also while a renewal waits for an API server that does not answer.
        """
        self._renewer = threading.Thread(target=self._renew, args=(on_lost,), name="lease", daemon=True)
        self._renewer.start()
        threading.Thread(target=self._guard, args=(on_lost,), name="lease-end", daemon=True).start()

    def stop(self) -> None:
        """Ends waiting and renewing."""
        self._stop.set()

    def release(self) -> None:
        """Stops renewing and gives the Lease back, so that a successor need not wait; failures do not matter.

        Where it was never asked for, nothing is done.
        """
        self.stop()
        if self._renewer is not None:
            self._renewer.join(timeout=self._terms.retry_seconds)
        if not self._may_hold:
            return
        try:
            record = self._read()
            if record is not None and record.holder == self._terms.identity:
                lease = lease_object(self._terms.name, record, Move.RENEW, "", duration_seconds=1, wall=self._wall())
                self._client.replace(lease_path(self._terms.namespace, self._terms.name), lease)
                LOG.info("lease given back lease=%s/%s identity=%s", *self._where())
        except KubeError as error:
            LOG.warning("lease not given back lease=%s/%s identity=%s error=%r", *self._where(), str(error))
        self._leads_until = None

    def _renew(self, on_lost: Callable[[str], None]) -> None:
        while not self._stop.wait(self._terms.retry_seconds):
            try:
                self.try_once()
            except KubeError as error:
                LOG.warning("lease not renewed lease=%s/%s identity=%s error=%r", *self._where(), str(error))
            if not self.is_leading():
                self._tell(on_lost)

    def _guard(self, on_lost: Callable[[str], None]) -> None:
        """Sees the lease end. Looks every so often too: a machine that slept has waited for less than its sleep."""
        while not self._stop.wait(min(self._left_seconds(), self._terms.retry_seconds)):
            if not self.is_leading():
                self._tell(on_lost)

    def _left_seconds(self) -> float:
        until = self._leads_until
        return 0.0 if until is None else max(0.0, until - self._clock())

    def _tell(self, on_lost: Callable[[str], None]) -> None:
        """Tells once, and never after `stop`."""
        with self._telling:
            if not self._stop.is_set():
                self.stop()
                on_lost(self._why_lost())

    def _why_lost(self) -> str:
        holder = "" if self._sighting is None else self._sighting.record.holder
        name = f"{self._terms.namespace}/{self._terms.name}"
        if holder and holder != self._terms.identity:
            return f"lease {name} is held by {holder} now"
        return f"lease {name} could not be renewed for {self._terms.duration_seconds} s"

    def _where(self) -> tuple[str, str, str]:
        return self._terms.namespace, self._terms.name, self._terms.identity

    def _read(self) -> LeaseRecord | None:
        try:
            return lease_record(self._client.get(lease_path(self._terms.namespace, self._terms.name)))
        except NotFoundError:
            return None

    def _write(self, record: LeaseRecord | None, move: Move) -> None:
        terms = self._terms
        lease = lease_object(
            terms.name, record, move, terms.identity, duration_seconds=terms.duration_seconds, wall=self._wall()
        )
        if record is None:
            written = self._client.create(leases_path(terms.namespace), lease)
        else:
            written = self._client.replace(lease_path(terms.namespace, terms.name), lease)
        self._sighting = Sighting(lease_record(written), self._clock())
