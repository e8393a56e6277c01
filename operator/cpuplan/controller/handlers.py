"""kopf's handlers: take what kopf hands over, pass it on, return. No decisions, no API calls.

Only `on.event`: every other kind of resource handler writes annotations or finalizers on the object. Nothing is
returned, because kopf would write a result into the object's status.
"""

from collections.abc import Callable
from typing import Any

import kopf

from ..kube.annotations import MANAGED_LABEL, MANAGED_VALUE
from .operation import Operation

LISTED = "LISTED"
"""Kind of pods that come from kopf's own listings, which it marks with no type."""

ConnectionSource = Callable[[], kopf.ConnectionInfo]


def registry_of(operation: Operation, connection: ConnectionSource) -> kopf.OperatorRegistry:
    """The handlers of the operator process."""
    registry = kopf.OperatorRegistry()

    # Group and version are named: for a bare 'pods' kopf asks every API group of the cluster, and one broken
    # aggregated API then ends the process.
    @kopf.on.event("", "v1", "pods", labels={MANAGED_LABEL: MANAGED_VALUE}, registry=registry)
    async def pod_event(event: kopf.RawEvent, **_: Any) -> None:
        if event["type"] == "DELETED":
            operation.pod_gone(event["object"])
        else:
            operation.pod_seen(event["object"], kind=event["type"] or LISTED)

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return connection()

    return registry
