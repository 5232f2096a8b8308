"""What tests of whole jobs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import slurm_here
from .hosts_here import HostsHere
from .slurm_here import Slurm
from .whole_jobs import Jobs


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Side by side (pytest-xdist), tests that share a Slurm, or a job of their module, are run by
    one worker: it is started once.
    """
    for item in items:
        if isinstance(item, pytest.Function) and (group := _shared(item)):
            item.add_marker(pytest.mark.xdist_group(group))


def _shared(item: pytest.Function) -> str:
    """Return what a test shares with others, "" for nothing."""
    if "slurm" in item.fixturenames:
        return "slurm"
    definitions = item._fixtureinfo.name2fixturedefs.values()
    return item.module.__name__ if any(each[-1].scope == "module" for each in definitions) else ""


@pytest.fixture
def jobs_here() -> Iterator[Jobs]:
    """Start jobs that end with the test."""
    starter = Jobs()
    yield starter
    starter.end()


@pytest.fixture
def hosts_here() -> Iterator[HostsHere]:
    """Make hosts that end with the test: namespaces of their own."""
    maker = HostsHere()
    try:
        yield maker
    finally:
        maker.end()


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
