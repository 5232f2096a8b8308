"""What is wrong with a scenario though every key and every value is well formed: names, mostly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import UsageError
from ..nearest import nearest
from ..pipelines import PIPELINES
from .applying import is_ours
from .cells import ALONE, MOST_CELLS, PLACES, cells, size
from .scenario import Scenario
from .scenario_toggles import own, toggles, why_not
from .step_names import known_names, names_of
from .toggle import Toggle

Path = tuple[str | int, ...]
_FOR_A_LAUNCHER = "'{}' is for a launcher, and 'command' is started without one"


@dataclass(frozen=True)
class Wrong:
    """A fact, and the way to what it is about: to the key if `of_key`, else to its value."""

    path: Path
    fact: str
    of_key: bool = False


def wrongs(scenario: Scenario, launchers: Sequence[str]) -> Iterator[Wrong]:
    """Yield all that is wrong with it; `launchers` are those that have a name."""
    yield from _what_to_run(scenario)
    yield from _launchers(scenario, launchers)
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
                yield Wrong((key,), _FOR_A_LAUNCHER.format(key), True)


def _own_toggles(scenario: Scenario) -> Iterator[Wrong]:
    for name, declared in scenario.own_toggles.items():
        try:
            own(name, declared)
        except UsageError as error:
            yield Wrong(("own_toggles", name), str(error), True)


def _timeouts(scenario: Scenario) -> Iterator[Wrong]:
    names: tuple[str, ...] = ()  # of a script of one's own any may be right
    if scenario.walked:
        names = names_of(scenario.walked)
    elif scenario.command and is_ours(scenario.command):
        names = known_names(scenario.command)
    for name in scenario.watch.timeout:
        if name and names and name not in names:
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
        for place in ("nodes", "ranks"):
            started_as_it_is = scenario.command and not (one.launcher or scenario.launcher)
            if getattr(one, place) and started_as_it_is:
                yield Wrong((*path, place), _FOR_A_LAUNCHER.format(place), True)


def _axes(scenario: Scenario, table: Sequence[Toggle]) -> Iterator[Wrong]:
    wrong = False
    as_it_is = scenario.command and not scenario.launcher and "launcher" not in scenario.axes
    for axis, values in scenario.axes.items():
        if as_it_is and axis in ("nodes", "ranks"):
            yield Wrong(("axes", axis), _FOR_A_LAUNCHER.format(axis), True)
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
    elif not wrong:
        yield from _on_several_nodes(scenario)


def _on_several_nodes(scenario: Scenario) -> Iterator[Wrong]:
    """Yield a cell on several nodes whose launcher starts one process."""
    for cell in cells(scenario):
        if cell.launcher == ALONE and cell.nodes > 1:
            fact = f"'nodes' cannot be {cell.nodes} where the launcher is {ALONE}: "
            path: Path = ("nodes",)
            if scenario.settings:
                path = ("settings", cell.number - 1)
            elif scenario.axes:
                path = ("axes", "nodes" if "nodes" in scenario.axes else "launcher")
            yield Wrong(path, fact + "it starts one process on this machine", True)
            return


def _launchers(scenario: Scenario, known: Sequence[str]) -> Iterator[Wrong]:
    """Yield launchers that are named without a path and do not ship. One that a path names is
    looked for when its cell is started.
    """
    named: list[tuple[Path, str | None]] = [(("launcher",), scenario.launcher)]
    named += [
        (("settings", n, "launcher"), one.launcher) for n, one in enumerate(scenario.settings)
    ]
    axis = scenario.axes.get("launcher", ())
    named += [(("axes", "launcher", n), name) for n, name in enumerate(axis)]
    for path, name in named:
        if name and name.strip() and "/" not in name and name not in known:
            near = nearest(name, known)
            yield Wrong(path, f"there is no launcher {name!r}; there are {', '.join(known)}{near}")


def _axis(scenario: Scenario, table: Sequence[Toggle], axis: str, value: str) -> str:
    """Return what is wrong with a value of an axis, or ""."""
    if axis in ("nodes", "ranks"):
        right = value.isascii() and value.isdigit() and len(value) < 10 and int(value) > 0
        return "" if right else f"{axis!r} cannot be {value!r}: it is a whole number from 1"
    if axis == "launcher":
        return "" if value.strip() else "'launcher' cannot be empty"
    return why_not(scenario, table, axis, value, or_one_of=PLACES)
