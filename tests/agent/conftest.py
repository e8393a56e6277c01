"""A kubelet's socket that a test may fill."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakekubelet import FakePodResources


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[FakePodResources]:
    """A kubelet that knows no pods."""
    with FakePodResources(tmp_path / "kubelet.sock") as server:
        yield server
