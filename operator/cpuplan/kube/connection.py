"""How to reach the API server: in-cluster service account or a kubeconfig file.

The `kubernetes` package finds address, certificates, proxy and credentials and keeps tokens fresh; it
re-reads the service account's token file every minute. Its request and model layers are not used: they
deserialize into models, reject unusual answers, and have no read timeout for watches.
"""

from dataclasses import dataclass
from pathlib import Path

import urllib3
from kubernetes import config as kubernetes_config
from kubernetes.client import Configuration
from kubernetes.client.rest import RESTClientObject

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


def connect(kubeconfig: Path | None = None, *, connection_count: int = 4) -> Connection:
    """The connection of this process: `kubeconfig` when given, else the pod's service account.

    Args:
        connection_count: connections kept open; a watch holds one for itself.

    Raises:
        KubeConfigError: neither is usable; says what was looked for.
    """
    configuration = Configuration()
    try:
        if kubeconfig is None:
            kubernetes_config.load_incluster_config(  # type: ignore[no-untyped-call]
                client_configuration=configuration
            )
        else:
            if not kubeconfig.is_file():
                raise KubeConfigError(f"kubeconfig {kubeconfig} does not exist; give an existing file")
            kubernetes_config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=str(kubeconfig), client_configuration=configuration, persist_config=False
            )
    except KubeConfigError:
        raise
    except kubernetes_config.ConfigException as error:
        if kubeconfig is None:
            raise KubeConfigError(
                f"no service account of a pod was found ({error}); outside a cluster give --kubeconfig"
            ) from error
        raise KubeConfigError(f"kubeconfig {kubeconfig} is not usable: {error}") from error
    except Exception as error:
        source = "the pod's service account" if kubeconfig is None else f"kubeconfig {kubeconfig}"
        raise KubeConfigError(f"{source} is not usable: {type(error).__name__}: {error}") from error
    configuration.connection_pool_maxsize = connection_count
    return Connection(configuration, RESTClientObject(configuration).pool_manager)
