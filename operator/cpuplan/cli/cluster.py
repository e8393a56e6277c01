"""The cluster as the commands for people reach it: kubectl's kubeconfig, and refusals with what helps."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..kube.errors import (
    ApiStatusError,
    ApiUnreachableError,
    ForbiddenError,
    KubeConfigError,
    KubeError,
    UnauthorizedError,
)
from .errors import CliError

if TYPE_CHECKING:
    from ..kube.connection import Connection

KUBECONFIG = "KUBECONFIG"
_USUAL = "~/.kube/config"

IN_A_POD = "KUBERNETES_SERVICE_HOST"
"""The kubelet sets it in every container; there the service account is what should have been found."""

Kubeconfig = tuple[Path, ...] | None
"""The files that are merged; None: the service account of the pod that this runs in."""


def chosen_kubeconfig(given: Path | None) -> Kubeconfig:
    """The file that the command line gives, else those of KUBECONFIG, else ~/.kube/config; None without any."""
    if given is not None:
        return (given,)
    named = tuple(Path(name) for name in os.environ.get(KUBECONFIG, "").split(os.pathsep) if name)
    if named:
        return named
    usual = Path(os.path.expanduser(_USUAL))  # noqa: PTH111 - Path.expanduser raises without a home
    return (usual,) if usual.is_file() else None


def open_cluster(files: Kubeconfig, *, connection_count: int = 4) -> Connection:
    """The connection to the API server.

    Raises:
        CliError: there is no kubeconfig and no service account, or they are not usable.
        ModuleNotFoundError: the package kubernetes is not installed.
    """
    from ..kube.connection import connect  # noqa: PLC0415 - most commands need no cluster

    try:
        return connect(files, connection_count=connection_count)
    except KubeConfigError as error:
        if files is not None or IN_A_POD in os.environ:
            raise CliError(str(error)) from error
        raise CliError(
            f"there is no kubeconfig: --kubeconfig is not given, {KUBECONFIG} names no file, {_USUAL} is not there, "
            "and this is no pod with a service account; give one"
        ) from error


def context_namespace(files: Kubeconfig) -> str:
    """The namespace of the current context of kubeconfig files that `open_cluster` has accepted."""
    from kubernetes import config  # noqa: PLC0415

    if files is None:
        return "default"
    _, current = config.list_kube_config_contexts(  # type: ignore[no-untyped-call]
        config_file=os.pathsep.join(map(str, files))
    )
    return str(current["context"].get("namespace") or "default")


def told(error: KubeError, files: Kubeconfig, connection: Connection, needs: str) -> CliError:
    """A failed request as one sentence for who typed the command.

    Args:
        needs: the rights that the request takes and where they are documented, as in `it takes ...`.
    """
    where = f"the API server at {connection.base_url}"
    if isinstance(error, UnauthorizedError):
        return CliError(
            f"{where} refuses the credentials of {_whose(files)} (401): they are unknown there or have expired; "
            "log in again, or give another kubeconfig"
        )
    if isinstance(error, ForbiddenError):
        return CliError(f"{where} refuses this to {_whose(files)} (403): {error.message}; it takes {needs}")
    return CliError(plainly(error, connection.base_url))


def plainly(error: KubeError, base_url: str) -> str:
    """What went wrong, without the request's path."""
    if isinstance(error, ApiStatusError):
        return f"the API server at {base_url} answered {f'{error.code} {error.reason}'.strip()}: {error.message}"
    if isinstance(error, ApiUnreachableError):
        return f"{error}; does the kubeconfig's current context name a cluster that runs?"
    return str(error)


def _whose(files: Sequence[Path] | None) -> str:
    if files is None:
        return "this pod's service account"
    return f"the user in kubeconfig {', '.join(map(str, files))}"
