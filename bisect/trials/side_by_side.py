"""What cells that run side by side name for themselves: whether it keeps them apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from ..bisection.cells import Cell
from ..bisection.launcher_words import PORTS
from ..errors import UsageError
from ..report.words import counted
from .apart import DEVICES, Share, listed_devices, shares, visible_devices

if TYPE_CHECKING:
    from ..bisection.scenario import Scenario

Path = tuple[str | int, ...]  # the way to a value of the scenario file


def shares_of(
    scenario: Scenario,
    cells: Sequence[Cell],
    jobs: int,
    environ: Mapping[str, str],
    where: Callable[[Path], str],
) -> list[Share]:
    """Return what each of `jobs` cells at a time has for itself, of what the file leaves them.

    `environ` is our own environment; `where` says where a value stands in the file ("my.yaml:7").
    Raises UsageError for cells that cannot run side by side.
    """
    jobs = min(jobs, len(cells))
    if jobs == 1:
        return shares(1, ())
    visible = visible_devices({**environ, **scenario.environment})
    for one, other in combinations(cells, 2):
        for name, value in _both(one, other, scenario, visible):
            raise UsageError(
                f"{where(_path(scenario, one, name))}: --jobs cannot be {jobs}: {one.name!r} and "
                f"{other.name!r} both have {name}={value}",
                f"Leave {name} out, and each cell gets its own; or run one cell at a time.",
            )
    found = shares(jobs, visible)
    for cell in cells:
        _enough(cell, _own_devices(cell, scenario), found[0], jobs)
    return found


def _both(
    one: Cell, other: Cell, scenario: Scenario, visible: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield variables of the file that two cells have alike, or a GPU that both name."""
    for name in PORTS:
        port = one.environment.get(name)
        if port is not None and other.environment.get(name) == port:
            yield name, port
    own, others = _own_devices(one, scenario), _own_devices(other, scenario)
    if own is None and others is None:
        return  # each gets its share
    both = set(visible if own is None else own) & set(visible if others is None else others)
    if both:
        yield DEVICES, ",".join(sorted(both))


def _own_devices(cell: Cell, scenario: Scenario) -> tuple[str, ...] | None:
    """Return the GPUs that a cell names for itself; None: it has a share of those of all."""
    named = cell.environment.get(DEVICES)
    if named is None or named == scenario.environment.get(DEVICES):
        return None
    return listed_devices(named)


def _path(scenario: Scenario, cell: Cell, name: str) -> Path:
    settings = scenario.settings
    if settings and name in settings[cell.number - 1].environment:
        return ("settings", cell.number - 1, "environment", name)
    return ("environment", name)


def _enough(cell: Cell, own: Sequence[str] | None, share: Share, jobs: int) -> None:
    devices = len(share.devices if own is None else own)
    if devices and cell.ranks > devices and cell.setting.get("accelerator") != "cpu":
        raise UsageError(
            f"--jobs cannot be {jobs}: each cell gets {counted(devices, 'GPU')}, and "
            f"{cell.name!r} has {cell.ranks} ranks",
            "Fewer jobs, or fewer ranks.",
        )
