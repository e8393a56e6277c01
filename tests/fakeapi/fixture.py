"""The API server in memory as a fixture, for all tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakeapi.server import FakeApi


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """An empty API server."""
    with FakeApi() as server:
        yield server


@pytest.fixture
def kubeconfig(api: FakeApi, tmp_path: Path) -> Path:
    """A kubeconfig for the API server in memory."""
    return api.write_kubeconfig(tmp_path / "kubeconfig")
