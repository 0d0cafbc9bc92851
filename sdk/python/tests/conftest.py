"""What several tests share."""

from collections.abc import Iterator

import pytest
from world import Hub


@pytest.fixture(scope="session")
def shared_hub() -> Iterator[Hub]:
    """One hub for all tests that do it no harm."""
    with Hub() as hub:
        yield hub


@pytest.fixture
def own_hub() -> Iterator[Hub]:
    """A hub of the test's own, to be killed."""
    with Hub() as hub:
        yield hub
