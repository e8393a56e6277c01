"""Whether the operator's account may do what the operator does, asked before anything starts."""

from collections.abc import Iterable
from dataclasses import dataclass

from ..kube.client import KubeClient
from ..kube.errors import KubeError

_REVIEWS_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one kind of object; in all namespaces where `namespace` is empty."""

    verb: str
    group: str
    resource: str
    namespace: str = ""

    def __str__(self) -> str:
        where = f"in namespace {self.namespace}" if self.namespace else "in all namespaces"
        return f"{self.verb} {self.resource}{'.' + self.group if self.group else ''} {where}"


class MissingRightsError(KubeError):
    """RBAC does not let the operator work.

    Attributes:
        missing: what it may not do.
    """

    def __init__(self, missing: Iterable[Right]) -> None:
        self.missing = tuple(missing)
        super().__init__(
            f"the operator's account may not {'; '.join(map(str, self.missing))}: bind it to the roles of the chart"
        )


def needed_rights(namespace: str) -> list[Right]:
    """Everything the operator cannot work without.

    Args:
        namespace: of the release: there are the ConfigMaps and the Lease.
    """
    return [
        *(Right(verb, "", "pods") for verb in ("list", "watch")),
        *(Right(verb, "", "events") for verb in ("create", "patch")),
        *(Right(verb, "", "configmaps", namespace) for verb in ("get", "list", "create", "patch", "delete")),
        *(Right(verb, "coordination.k8s.io", "leases", namespace) for verb in ("get", "create", "update")),
    ]


def require_rights(client: KubeClient, rights: Iterable[Right]) -> None:
    """Returns if the account has all `rights`.

    Raises:
        MissingRightsError: names those that it has not.
        KubeError: the API server did not answer.
    """
    missing = [right for right in rights if not _is_allowed(client, right)]
    if missing:
        raise MissingRightsError(missing)


def _is_allowed(client: KubeClient, right: Right) -> bool:
    attributes = {"verb": right.verb, "group": right.group, "resource": right.resource}
    if right.namespace:
        attributes["namespace"] = right.namespace
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    status = client.create(_REVIEWS_PATH, review).get("status") or {}
    return bool(status.get("allowed"))
