"""An API server in memory, and a client for it that does not wait between tries."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from cpuplan.kube.client import KubeClient, default_retries
from cpuplan.kube.connection import connect
from tests.fakeapi import FakeApi


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """An empty API server."""
    with FakeApi() as server:
        yield server


@pytest.fixture
def client(api: FakeApi, tmp_path: Path) -> Iterator[KubeClient]:
    """A client with the product's retries, without their waiting times."""
    retries: urllib3.Retry = default_retries().new(backoff_factor=0.0, backoff_jitter=0.0)
    connection = connect(api.write_kubeconfig(tmp_path / "kubeconfig"))
    yield KubeClient(connection, retries=retries)
    connection.close()
