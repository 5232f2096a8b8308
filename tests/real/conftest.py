"""What tests of whole jobs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .whole_jobs import Jobs


@pytest.fixture
def jobs_here() -> Iterator[Jobs]:
    """Start jobs that end with the test."""
    starter = Jobs()
    yield starter
    starter.end()
