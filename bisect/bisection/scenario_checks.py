"""What is wrong with a scenario though every key and every value is well formed: names, mostly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import UsageError
from ..nearest import nearest
from ..pipelines import PIPELINES
from ..pipelines import find as find_pipeline
from .cells import MOST_CELLS, PLACES, cells, size
from .scenario import Scenario
from .scenario_toggles import own, toggles, why_not
from .toggle import Toggle

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Wrong:
    """A fact, and the way to what it is about: to the key if `of_key`, else to its value."""

    path: Path
    fact: str
    of_key: bool = False


def wrongs(scenario: Scenario) -> Iterator[Wrong]:
    """Yield all that is wrong with it."""
    yield from _what_to_run(scenario)
    yield from _timeouts(scenario)
    own = tuple(_own_toggles(scenario))
    yield from own
    if own:
        return  # what is said of them elsewhere cannot be judged
    table = toggles(scenario)
    yield from _settings(scenario, table)
    yield from _axes(scenario, table)
    for key in ("only", "without"):
        for number, name in enumerate(getattr(scenario.isolate, key)):
            fact = why_not(scenario, table, name)
            if fact:
                yield Wrong(("isolate", key, number), fact)


def _what_to_run(scenario: Scenario) -> Iterator[Wrong]:
    if scenario.pipeline is not None and scenario.pipeline not in PIPELINES:
        name = scenario.pipeline
        one_of = f"it is one of {', '.join(PIPELINES)}{nearest(name, PIPELINES)}"
        yield Wrong(("pipeline",), f"'pipeline' cannot be {name!r}: {one_of}")
    if scenario.command is None:
        return
    if scenario.pipeline is not None:
        yield Wrong(("pipeline",), "it names a pipeline and a command; it is one of them", True)
    if scenario.arguments:
        fact = "'arguments' are a pipeline's; the words of a command stand in 'command'"
        yield Wrong(("arguments",), fact, True)
    if scenario.launcher is None:
        for key in ("nodes", "ranks"):
            if key in scenario.model_fields_set:
                fact = f"{key!r} is for a launcher, and 'command' is started without one"
                yield Wrong((key,), fact, True)


def _own_toggles(scenario: Scenario) -> Iterator[Wrong]:
    for name, declared in scenario.own_toggles.items():
        try:
            own(name, declared)
        except UsageError as error:
            yield Wrong(("own_toggles", name), str(error), True)


def _timeouts(scenario: Scenario) -> Iterator[Wrong]:
    if not scenario.walked or scenario.walked not in PIPELINES:
        return
    table = find_pipeline(scenario.walked).table
    names = [row.name for row in table] + [p.name for row in table for p in row.phases]
    for name in scenario.watch.timeout:
        if name and name not in names:
            fact = f"there is no checkpoint or phase {name!r}{nearest(name, names)}"
            yield Wrong(("watch", "timeout", name), fact, True)


def _settings(scenario: Scenario, table: Sequence[Toggle]) -> Iterator[Wrong]:
    if scenario.settings and scenario.axes:
        yield Wrong(("axes",), "it has 'settings' and 'axes'; it is one of them", True)
    first: dict[str, int] = {}
    for number, one in enumerate(scenario.settings):
        path: Path = ("settings", number)
        if one.name in first:
            yield Wrong((*path, "name"), f"two cells have the name {one.name!r}")
        first.setdefault(one.name, number)
        for name, value in one.toggles.items():
            fact = why_not(scenario, table, name, value)
            if fact:
                yield Wrong((*path, "toggles", name), fact, of_key=True)
        for place in PLACES:
            started_as_it_is = scenario.command and not (one.launcher or scenario.launcher)
            if place != "launcher" and getattr(one, place) and started_as_it_is:
                fact = f"{place!r} is for a launcher, and 'command' is started without one"
                yield Wrong((*path, place), fact, True)


def _axes(scenario: Scenario, table: Sequence[Toggle]) -> Iterator[Wrong]:
    wrong = False
    for axis, values in scenario.axes.items():
        for at, value in enumerate(values):
            fact = _axis(scenario, table, axis, value)
            if fact:
                wrong = True
                yield Wrong(("axes", axis, at), fact)
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None:
            yield Wrong(("axes", axis), f"{axis!r} has the value {twice!r} twice")
    for number, excluded in enumerate(scenario.exclude):
        for axis, values in excluded.items():
            path: Path = ("exclude", number, axis)
            if axis not in scenario.axes:
                fact = f"it excludes {axis!r}, which is no axis{nearest(axis, scenario.axes)}"
                wrong = True
                yield Wrong(path, fact, True)
                continue
            for value in values:
                allowed = scenario.axes[axis]
                if value not in allowed:
                    fact = f"it excludes {axis}={value}, which is no value of that axis"
                    yield Wrong(path, fact + nearest(value, allowed))
    if size(scenario) > MOST_CELLS:
        fact = f"that makes {size(scenario):,} cells; at most {MOST_CELLS:,} are run"
        yield Wrong(("axes",) if scenario.axes else ("settings",), fact, True)
    elif not wrong and not cells(scenario):
        yield Wrong(("exclude",), "every combination is excluded", True)


def _axis(scenario: Scenario, table: Sequence[Toggle], axis: str, value: str) -> str:
    """Return what is wrong with a value of an axis, or ""."""
    if axis in ("nodes", "ranks"):
        right = value.isascii() and value.isdigit() and len(value) < 10 and int(value) > 0
        return "" if right else f"{axis!r} cannot be {value!r}: it is a whole number from 1"
    if axis == "launcher":
        return "" if value.strip() else "'launcher' cannot be empty"
    return why_not(scenario, table, axis, value, or_one_of=PLACES)
