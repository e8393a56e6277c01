"""The connection of `cpuplan.kube`, told to kopf, so that both reach the API server the same way."""

import kopf
from kubernetes.client import Configuration

from ..kube.connection import Connection


def kopf_connection(connection: Connection) -> kopf.ConnectionInfo:
    """What kopf needs to open its own connection; asked again whenever the API server answers 401.

    Raises:
        KubeConfigError: the token cannot be read any more.
    """
    configuration: Configuration = connection.configuration
    scheme, _, token = (connection.authorization() or "").partition(" ")
    return kopf.ConnectionInfo(
        server=connection.base_url,
        ca_path=configuration.ssl_ca_cert or None,
        insecure=not configuration.verify_ssl,
        username=None if token else configuration.username or None,
        password=None if token else configuration.password or None,
        scheme=scheme or None,
        token=token or None,
        certificate_path=configuration.cert_file or None,
        private_key_path=configuration.key_file or None,
        proxy_url=configuration.proxy or None,
    )
