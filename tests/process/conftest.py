"""Logging that a test may turn upside down."""

from collections.abc import Iterator

import pytest

from tests import restored


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """The logging of the process is afterwards what it was before."""
    with restored.restored_logging():
        yield
