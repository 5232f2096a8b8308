"""What tests of whole jobs share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import flux_here, slurm_here
from .flux_here import Flux
from .hosts_here import HostsHere
from .slurm_here import Slurm
from .whole_jobs import Jobs

HERE = f"{Path(__file__).parent}{os.sep}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start a whole job once more where its test fails; the first failure is printed as well."""
    for item in items:
        if str(item.path).startswith(HERE):
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture
def jobs_here() -> Iterator[Jobs]:
    """Start jobs that end with the test."""
    starter = Jobs()
    yield starter
    starter.end()


@pytest.fixture
def light_jobs() -> Iterator[Jobs]:
    """The same, with a launcher that imports no torch: where it is not what a test is about."""
    starter = Jobs(light=True)
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


@pytest.fixture(scope="session")
def flux() -> Iterator[Flux]:
    """A real Flux of two brokers, for all tests that want one."""
    why_not = flux_here.missing()
    if why_not:
        pytest.skip(why_not)
    made = Flux()
    try:
        made.start()
        yield made
    finally:
        made.end()
