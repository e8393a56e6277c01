"""The operator process, from its start to its exit code.

1. Connect, and ask whether everything is allowed: what is missing ends the process here, in one sentence.
2. Serve /metrics, /healthz and /readyz. A process that waits for the Lease is ready: a rolling update must not
   wait for it.
3. Wait for the Lease.
4. Run kopf and the operation in one event loop. Whatever fails ends the process: after a restart everything is
   built anew from the API server.
5. Give the Lease back.
"""

import asyncio
import logging
import os
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import kopf
import urllib3
from kopf._core.engines.peering import Identity

from ..kube.annotations import MANAGED_SELECTOR
from ..kube.client import CHUNK_SIZE, KubeClient
from ..kube.connection import Connection, connect
from ..process.endpoints import Answers, served
from .access import needed_rights, require_rights
from .connections import kopf_connection
from .eventposter import EventPoster
from .failures import EXIT_FAILED, failure_of
from .handlers import registry_of
from .indexstore import IndexStore
from .leader import Leadership, LeaseTerms
from .logs import configure_logging
from .metrics import OperatorMetrics
from .nodes import NodeKnowledge
from .operation import Operation, Rhythm
from .reconciler import Reconciler, Waits
from .settings import OperatorSettings

LOG = logging.getLogger(__name__)

USER_AGENT = "cpuplan-operator"

HANGING_SECONDS = 300.0
"""Without a step for this long the process is restarted. The longest step is a pass of hundreds of requests; one
request with all its tries ends within 90 s."""

WATCH_SECONDS = (300, 600)
"""A watch is opened anew after a random time in this range, so that restarts of the API server spread out."""

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_NEVER_SET = "cpuplan.dev/none"
"""A finalizer that no pod has: kopf takes its default marker off every pod that it sees, also one that another
operator put there."""


def run_operator(settings: OperatorSettings) -> int:
    """Runs until SIGTERM or SIGINT (exit code 0), or until something fails (its exit code, after one sentence)."""
    configure_logging(settings.log_level)
    LOG.info("settings %s", settings.as_log())
    try:
        with _stops_by_signal():
            connection = connect(settings.kubeconfig)
            client = KubeClient(connection, user_agent=USER_AGENT)
            require_rights(client, needed_rights(settings.namespace))
            _lead(settings, connection, client)
    except SystemExit:
        LOG.info("stopped")
    except Exception as error:  # the process's last line of defence: everything becomes a sentence
        failure = failure_of(error)
        LOG.error("%s", failure.sentence)
        LOG.debug("traceback", exc_info=error)
        return failure.exit_code
    return 0


def kopf_settings(*, source: random.Random | None = None) -> kopf.OperatorSettings:
    """kopf as a watcher of planned pods and nothing else: no peering, no CRDs, no Events, no traces on pods."""
    settings = kopf.OperatorSettings()
    settings.watching.label_selectors["", "v1", "pods"] = MANAGED_SELECTOR
    settings.watching.chunk_size = CHUNK_SIZE
    settings.watching.server_timeout = (source or random).randint(*WATCH_SECONDS)
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.persistence.finalizer = _NEVER_SET
    # A worker holds its pod's last event for as long as it idles.
    settings.queueing.idle_timeout = 1.0
    # The pod gets 15 s to end; a process that hangs in its end is killed before.
    settings.process.ultimate_exiting_timeout = 10.0
    return settings


def _lead(settings: OperatorSettings, connection: Connection, client: KubeClient) -> None:
    metrics = OperatorMetrics()
    leadership = _candidate(settings, connection)
    operation = _operation(settings, client, metrics, leadership)

    def hanging() -> str:
        silent = operation.silent_seconds() if leadership.is_leading() else 0.0
        return f"no step for {silent:.0f} s" if silent > HANGING_SECONDS else ""

    def unready() -> str:
        return "" if operation.is_ready or not leadership.is_leading() else "pods are being listed"

    with served(settings.metrics_address, Answers(metrics.registry, hanging, unready)):
        try:
            if leadership.wait_until_leading():
                metrics.set_leading(True)
                leadership.keep(_end_at_once)
                asyncio.run(_work(operation, connection, settings.identity))
        finally:
            leadership.release()


def _candidate(settings: OperatorSettings, connection: Connection) -> Leadership:
    # One try per request: a request that is repeated inside the client would outlive the lease.
    client = KubeClient(connection, user_agent=USER_AGENT, retries=urllib3.Retry(total=0, redirect=0))
    duration_seconds = round(settings.lease_seconds)
    terms = LeaseTerms(settings.namespace, settings.lease, settings.identity, duration_seconds, duration_seconds / 3)
    return Leadership(client, terms)


def _operation(
    settings: OperatorSettings, client: KubeClient, metrics: OperatorMetrics, leadership: Leadership
) -> Operation:
    reconciler = Reconciler(
        IndexStore(client, settings.namespace, settings.configmap),
        EventPoster(client, instance=settings.identity),
        NodeKnowledge(client, namespace=settings.namespace, agent_selector=settings.agent_selector),
        metrics,
        waits=Waits(settings.plan_wait_seconds, settings.init_wait_seconds),
    )
    rhythm = Rhythm(write_interval_seconds=settings.write_interval_seconds, resync_seconds=settings.resync_seconds)
    return Operation(client, reconciler, metrics, rhythm=rhythm, is_leading=leadership.is_leading)


async def _work(operation: Operation, connection: Connection, identity: str) -> None:
    """Runs kopf and the operation until a signal comes, or either fails."""
    is_told_to_stop = asyncio.Event()
    for number in _STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, is_told_to_stop.set)
    work = asyncio.create_task(operation.run(), name="operation")
    watch = asyncio.create_task(_watch(operation, connection, identity, is_told_to_stop), name="kopf")
    stop = asyncio.create_task(is_told_to_stop.wait(), name="stop")
    done, pending = await asyncio.wait({work, watch, stop}, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    for task in done:
        task.result()


async def _watch(operation: Operation, connection: Connection, identity: str, is_told_to_stop: asyncio.Event) -> None:
    """Runs kopf until it is cancelled or fails.

    1. kopf is told its identity: it would ask for the user's name, which a numeric user of a container has not.
    2. The signals that it takes are taken back: at its own end it gives whatever it has begun 5 s to finish, and in
       its first moments that is requests that do not. Cancelled, it ends at once, and leaves nothing that matters.
    """
    others = asyncio.all_tasks()
    tasks = await kopf.spawn_tasks(
        registry=registry_of(operation, lambda: kopf_connection(connection)),
        settings=kopf_settings(),
        identity=Identity(identity),
        clusterwide=True,
        standalone=True,
    )
    for number in _STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, is_told_to_stop.set)
    await kopf.run_tasks(tasks, ignored=others)


@contextmanager
def _stops_by_signal() -> Iterator[None]:
    """SIGTERM ends the process by SystemExit until `_work` handles it, also as process 1 of a container."""
    previous = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _end_at_once(why: str) -> None:
    """Ends the process without any tidying: from this moment another process may write."""
    LOG.error("%s; the process ends, to start again as a candidate", why)
    logging.shutdown()
    os._exit(EXIT_FAILED)
