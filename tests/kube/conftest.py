"""A client for the API server in memory, that does not wait between tries."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from cpuplan.kube.client import KubeClient, default_retries
from cpuplan.kube.connection import connect


@pytest.fixture
def client(kubeconfig: Path) -> Iterator[KubeClient]:
    """A client with the product's retries, without their waiting times."""
    retries: urllib3.Retry = default_retries().new(backoff_factor=0.0, backoff_jitter=0.0)
    connection = connect(kubeconfig)
    yield KubeClient(connection, retries=retries)
    connection.close()
