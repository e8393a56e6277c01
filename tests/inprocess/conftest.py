"""What the tests of the in-process face share: a pod's volume on an eight-GPU server."""

from __future__ import annotations

from pathlib import Path

import pytest

from cpuplan.host.root import HostRoot
from tests.conftest import TreeOf
from tests.podvolume import PodVolume


@pytest.fixture
def volume(tmp_path: Path) -> PodVolume:
    """An empty folder for a plan volume."""
    return PodVolume(tmp_path / "cpuplan")


@pytest.fixture
def server(own_machine: TreeOf) -> HostRoot:
    """A two-socket server with eight H100."""
    return own_machine("h100-server")
