"""A client for the API server in memory that does not wait between tries, and a clock that tests move."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cpuplan.kube.client import KubeClient, default_retries
from cpuplan.kube.connection import connect
from tests import restored
from tests.fakeapi import FakeApi


@dataclass(slots=True)
class FakeClock:
    """Seconds that pass only when a test says so."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    """A clock at 1000 s."""
    return FakeClock()


@pytest.fixture
def client(kubeconfig: Path) -> Iterator[KubeClient]:
    """A client that tries everything once."""
    connection = connect(kubeconfig)
    yield KubeClient(connection, retries=default_retries().new(total=0, backoff_factor=0.0, backoff_jitter=0.0))
    connection.close()


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """The logging of the process is afterwards what it was before."""
    with restored.restored_logging():
        yield


def writes(api: FakeApi) -> list[tuple[str, str]]:
    """Method and path of every request so far that changes something."""
    return [(r.method, r.path) for method in ("POST", "PUT", "PATCH", "DELETE") for r in api.requests_of(method)]
