"""Paths of the API objects cpuplan touches."""

from urllib.parse import quote


def pods_path(namespace: str | None = None) -> str:
    """The pods of a namespace, or of all."""
    return "/api/v1/pods" if namespace is None else f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"


def pod_path(namespace: str, name: str) -> str:
    """One pod."""
    return f"{pods_path(namespace)}/{quote(name, safe='')}"


def configmaps_path(namespace: str) -> str:
    """The ConfigMaps of a namespace."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps"


def configmap_path(namespace: str, name: str) -> str:
    """One ConfigMap."""
    return f"{configmaps_path(namespace)}/{quote(name, safe='')}"


def events_path(namespace: str) -> str:
    """The Events (core/v1) of a namespace."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/events"


def event_path(namespace: str, name: str) -> str:
    """One Event."""
    return f"{events_path(namespace)}/{quote(name, safe='')}"


def leases_path(namespace: str) -> str:
    """The Leases of a namespace."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace, safe='')}/leases"


def lease_path(namespace: str, name: str) -> str:
    """One Lease."""
    return f"{leases_path(namespace)}/{quote(name, safe='')}"
