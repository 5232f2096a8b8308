"""What tests that compare a program with and without us share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .side_by_side import Beside


@pytest.fixture
def beside() -> Iterator[Beside]:
    """Run programs plainly and below the watch; nothing of them outlives the test."""
    made = Beside()
    yield made
    made.end()
