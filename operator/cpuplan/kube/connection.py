"""How to reach the API server: in-cluster service account or a kubeconfig file.

The `kubernetes` package finds address, certificates, proxy and credentials and keeps tokens fresh; it
re-reads the service account's token file every minute. Its request and model layers are not used: they
deserialize into models, reject unusual answers, and have no read timeout for watches.
"""

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import urllib3
from kubernetes import config as kubernetes_config
from kubernetes.client import Configuration
from kubernetes.client.rest import RESTClientObject
from kubernetes.config.kube_config import KubeConfigMerger
from yaml import YAMLError

from .errors import KubeConfigError


@dataclass(frozen=True, slots=True)
class Connection:
    """Where the API server is, and how a request proves who sends it."""

    configuration: Configuration
    pool: urllib3.PoolManager

    @property
    def base_url(self) -> str:
        """Scheme, host and port, without a slash at the end."""
        return str(self.configuration.host).rstrip("/")

    def authorization(self) -> str | None:
        """The Authorization header of the next request, None without one (client certificates, plain HTTP).

        Asked anew for every request: an expired token is re-read here.

        Raises:
            KubeConfigError: the token cannot be read any more.
        """
        try:
            value = self.configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        except (OSError, kubernetes_config.ConfigException) as error:
            raise KubeConfigError(f"the API token cannot be read again: {error}") from error
        return None if value is None else str(value)

    def close(self) -> None:
        """Closes the connections that are kept open."""
        self.pool.clear()


def connect(kubeconfig: Path | Sequence[Path] | None = None, *, connection_count: int = 4) -> Connection:
    """The connection of this process: `kubeconfig` when given, else the pod's service account.

    Args:
        kubeconfig: a file, or several that are merged as kubectl merges those of KUBECONFIG: missing ones are
            passed over.
        connection_count: connections kept open; a watch holds one for itself.

    Raises:
        KubeConfigError: neither is usable; says what was looked for.
    """
    configuration = Configuration()
    if kubeconfig is None:
        _load_service_account(configuration)
    else:
        _load_kubeconfig(configuration, (kubeconfig,) if isinstance(kubeconfig, Path) else kubeconfig)
    configuration.connection_pool_maxsize = connection_count
    return Connection(configuration, RESTClientObject(configuration).pool_manager)


def _load_service_account(configuration: Configuration) -> None:
    try:
        kubernetes_config.load_incluster_config(  # type: ignore[no-untyped-call]
            client_configuration=configuration
        )
    except kubernetes_config.ConfigException as error:
        raise KubeConfigError(
            f"no service account of a pod was found ({error}); outside a cluster give --kubeconfig"
        ) from error
    except (OSError, ValueError) as error:
        raise KubeConfigError(f"the pod's service account is not usable: {error}") from error


def _load_kubeconfig(configuration: Configuration, files: Sequence[Path]) -> None:
    """Reads the files that are there.

    1. The package merges and reads them.
    2. It only logs that a credential plugin failed, and goes on as nobody; here that is an error.
    3. An address without a scheme would be taken for plain HTTP.
    """
    unusable = f"kubeconfig {', '.join(map(str, files))} is not usable"
    try:
        existing = [str(file) for file in files if file.is_file()]
        if not existing:
            raise KubeConfigError(f"kubeconfig {', '.join(map(str, files))} does not exist; give an existing file")
        with _errors_of_root_logger() as complaints:
            kubernetes_config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=os.pathsep.join(existing), client_configuration=configuration, persist_config=False
            )
    except KubeConfigError:
        raise
    except (kubernetes_config.ConfigException, ValueError) as error:
        raise KubeConfigError(f"{unusable}: {_without_context(existing) or error}") from error
    except OSError as error:
        raise KubeConfigError(f"{unusable}: {error.strerror or error}") from error
    except YAMLError as error:
        raise KubeConfigError(f"{unusable}: it is no YAML: {error}") from error
    except Exception as error:
        # The package indexes what it has read as if it were a kubeconfig.
        raise KubeConfigError(f"{unusable}: expected YAML with clusters, users and contexts") from error
    if complaints:
        raise KubeConfigError(f"{unusable}: its credential plugin gave no credentials: {complaints[0]}")
    if not str(configuration.host).startswith(("https://", "http://")):
        raise KubeConfigError(
            f"{unusable}: its server is {configuration.host}, expected an address such as https://HOST:6443"
        )


def _without_context(files: Sequence[str]) -> str:
    """What to do about kubeconfig files without a current context; empty where they have one, or cannot be read."""
    try:
        merged = KubeConfigMerger(os.pathsep.join(files)).config  # type: ignore[no-untyped-call]
        current = merged.safe_get("current-context")
        names = [str(context["name"]) for context in merged.safe_get("contexts") or ()]
    except Exception:  # noqa: BLE001 - the package indexes what it has read as if it were a kubeconfig
        return ""
    if current in names:
        return ""
    lacks = f"its current-context {current} is none of its contexts" if current else "it names no current-context"
    choice = f"choose {' or '.join(names)}" if names else "it has no context to choose from; add one"
    return f"{lacks}; {choice} with kubectl config {'use-context' if names else 'set-context'}"


@contextmanager
def _errors_of_root_logger() -> Iterator[list[str]]:
    """What this thread logs as errors to the root logger meanwhile; it is not shown."""
    messages: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.thread == threading.get_ident():
                messages.append(record.getMessage())

    handler = Collect(logging.ERROR)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield messages
    finally:
        root.removeHandler(handler)
