"""What tests of whole jobs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import slurm_here
from .slurm_here import Slurm
from .whole_jobs import Jobs


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that want Slurm share one, so that side by side (pytest-xdist) they run in one worker."""
    for item in items:
        if "slurm" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("slurm"))


@pytest.fixture
def jobs_here() -> Iterator[Jobs]:
    """Start jobs that end with the test."""
    starter = Jobs()
    yield starter
    starter.end()


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    """A real Slurm of two nodes, for all tests that want one."""
    why_not = slurm_here.missing()
    if why_not:
        pytest.skip(why_not)
    made = Slurm()
    try:
        made.start()
        yield made
    finally:
        made.end()
