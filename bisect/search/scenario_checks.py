"""The toggles that a scenario has, and what is wrong with a scenario though every key and every
value is well formed: names, mostly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..base.command_words import PIPELINE
from ..base.errors import UsageError, nearest
from ..base.lazy_dataclass import dataclass
from ..base.pipeline import PIPELINES, known_names, names_of
from ..toggles.command_toggles import apply_setting, walks_pipeline
from ..toggles.table import TOGGLES
from ..toggles.toggle import Toggle, own_toggle
from .cells import ALONE, MOST_CELLS, PLACES, count_cells, list_cells
from .scenario import OwnToggle, Scenario

KeyPath = tuple[str | int, ...]
_FOR_A_LAUNCHER = "'{}' is for a launcher, and 'command' is started without one"


@dataclass(frozen=True)
class Mistake:
    """A fact, and the way to what it is about: to the key if `of_key`, else to its value."""

    path: KeyPath
    fact: str
    of_key: bool = False


def find_mistakes(scenario: Scenario, launchers: Sequence[str]) -> Iterator[Mistake]:
    """Yield all that is wrong with it; `launchers` are those that have a name."""
    yield from _check_what_to_run(scenario)
    yield from _check_launchers(scenario, launchers)
    yield from _check_timeouts(scenario)
    own = tuple(_check_own_toggles(scenario))
    yield from own
    if own:
        return  # what is said of them elsewhere cannot be judged
    table = toggles_of_scenario(scenario)
    yield from _check_settings(scenario, table)
    yield from _check_axes(scenario, table)
    for key in ("only", "without"):
        for number, name in enumerate(getattr(scenario.isolate, key)):
            fact = why_not_applicable(scenario, table, name)
            if fact:
                yield Mistake(("isolate", key, number), fact)


def _check_what_to_run(scenario: Scenario) -> Iterator[Mistake]:
    if scenario.pipeline is not None and scenario.pipeline not in PIPELINES:
        name = scenario.pipeline
        one_of = f"it is one of {', '.join(PIPELINES)}{nearest(name, PIPELINES)}"
        yield Mistake(("pipeline",), f"'pipeline' cannot be {name!r}: {one_of}")
    if scenario.command is None:
        return
    if scenario.pipeline is not None:
        yield Mistake(("pipeline",), "it names a pipeline and a command; it is one of them", True)
    if scenario.arguments:
        fact = "'arguments' are a pipeline's; the words of a command stand in 'command'"
        yield Mistake(("arguments",), fact, True)
    if scenario.launcher is None:
        for key in ("nodes", "ranks"):
            if key in scenario.model_fields_set:
                yield Mistake((key,), _FOR_A_LAUNCHER.format(key), True)


def _check_own_toggles(scenario: Scenario) -> Iterator[Mistake]:
    for name, declared in scenario.own_toggles.items():
        try:
            declare_own_toggle(name, declared)
        except UsageError as error:
            yield Mistake(("own_toggles", name), str(error), True)


def _check_timeouts(scenario: Scenario) -> Iterator[Mistake]:
    names: tuple[str, ...] = ()  # of a script of one's own any may be right
    if scenario.walked:
        names = names_of(scenario.walked)
    elif scenario.command and walks_pipeline(scenario.command):
        names = known_names(scenario.command)
    for name in scenario.watch.timeout:
        if name and names and name not in names:
            fact = f"there is no checkpoint or phase {name!r}{nearest(name, names)}"
            yield Mistake(("watch", "timeout", name), fact, True)


def _check_settings(scenario: Scenario, table: Sequence[Toggle]) -> Iterator[Mistake]:
    if scenario.settings and scenario.axes:
        yield Mistake(("axes",), "it has 'settings' and 'axes'; it is one of them", True)
    first: dict[str, int] = {}
    for number, one in enumerate(scenario.settings):
        path: KeyPath = ("settings", number)
        if one.name in first:
            yield Mistake((*path, "name"), f"two cells have the name {one.name!r}")
        first.setdefault(one.name, number)
        for name, value in one.toggles.items():
            fact = why_not_applicable(scenario, table, name, value)
            if fact:
                yield Mistake((*path, "toggles", name), fact, of_key=True)
        for place in ("nodes", "ranks"):
            started_as_it_is = scenario.command and not (one.launcher or scenario.launcher)
            if getattr(one, place) and started_as_it_is:
                yield Mistake((*path, place), _FOR_A_LAUNCHER.format(place), True)


def _check_axes(scenario: Scenario, table: Sequence[Toggle]) -> Iterator[Mistake]:
    wrong = False
    as_it_is = scenario.command and not scenario.launcher and "launcher" not in scenario.axes
    for axis, values in scenario.axes.items():
        if as_it_is and axis in ("nodes", "ranks"):
            yield Mistake(("axes", axis), _FOR_A_LAUNCHER.format(axis), True)
        for at, value in enumerate(values):
            fact = _check_axis_value(scenario, table, axis, value)
            if fact:
                wrong = True
                yield Mistake(("axes", axis, at), fact)
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None:
            yield Mistake(("axes", axis), f"{axis!r} has the value {twice!r} twice")
    for number, excluded in enumerate(scenario.exclude):
        for axis, values in excluded.items():
            path: KeyPath = ("exclude", number, axis)
            if axis not in scenario.axes:
                fact = f"it excludes {axis!r}, which is no axis{nearest(axis, scenario.axes)}"
                wrong = True
                yield Mistake(path, fact, True)
                continue
            for value in values:
                allowed = scenario.axes[axis]
                if value not in allowed:
                    fact = f"it excludes {axis}={value}, which is no value of that axis"
                    yield Mistake(path, fact + nearest(value, allowed))
    if count_cells(scenario) > MOST_CELLS:
        fact = f"that makes {count_cells(scenario):,} cells; at most {MOST_CELLS:,} are run"
        yield Mistake(("axes",) if scenario.axes else ("settings",), fact, True)
    elif not wrong and not list_cells(scenario):
        yield Mistake(("exclude",), "every combination is excluded", True)
    elif not wrong:
        yield from _check_several_nodes(scenario)


def _check_several_nodes(scenario: Scenario) -> Iterator[Mistake]:
    """Yield a cell on several nodes whose launcher starts one process."""
    for cell in list_cells(scenario):
        if cell.launcher == ALONE and cell.nodes > 1:
            fact = f"'nodes' cannot be {cell.nodes} where the launcher is {ALONE}: "
            path: KeyPath = ("nodes",)
            if scenario.settings:
                path = ("settings", cell.number - 1)
            elif scenario.axes:
                path = ("axes", "nodes" if "nodes" in scenario.axes else "launcher")
            yield Mistake(path, fact + "it starts one process on this machine", True)
            return


def _check_launchers(scenario: Scenario, known: Sequence[str]) -> Iterator[Mistake]:
    """Yield launchers without a path that do not ship; others are looked for at their cells."""
    named: list[tuple[KeyPath, str | None]] = [(("launcher",), scenario.launcher)]
    named += [
        (("settings", n, "launcher"), one.launcher) for n, one in enumerate(scenario.settings)
    ]
    axis = scenario.axes.get("launcher", ())
    named += [(("axes", "launcher", n), name) for n, name in enumerate(axis)]
    for path, name in named:
        if name and name.strip() and "/" not in name and name not in known:
            near = nearest(name, known)
            yield Mistake(
                path, f"there is no launcher {name!r}; there are {', '.join(known)}{near}"
            )


def _check_axis_value(scenario: Scenario, table: Sequence[Toggle], axis: str, value: str) -> str:
    """Return what is wrong with a value of an axis, or ""."""
    if axis in ("nodes", "ranks"):
        right = value.isascii() and value.isdigit() and len(value) < 10 and int(value) > 0
        return "" if right else f"{axis!r} cannot be {value!r}: it is a whole number from 1"
    if axis == "launcher":
        return "" if value.strip() else "'launcher' cannot be empty"
    return why_not_applicable(scenario, table, axis, value, or_one_of=PLACES)


# Only to see whether a value can be applied: what is started later has the real launcher.
_ANY_LAUNCHER = "launchers/any"


def toggles_of_scenario(scenario: Scenario) -> tuple[Toggle, ...]:
    """Return all toggles, the scenario's own last. Raises UsageError for one that cannot be."""
    return (
        *TOGGLES,
        *(declare_own_toggle(name, declared) for name, declared in scenario.own_toggles.items()),
    )


def declare_own_toggle(name: str, declared: OwnToggle) -> Toggle:
    """Return a toggle that a scenario declares. Raises UsageError where it cannot be one."""
    if not name.isidentifier() or any(entry.name == name for entry in TOGGLES):
        taken = "there is one of that name" if name.isidentifier() else "letters, digits and _ do"
        raise UsageError(f"{name!r} cannot name a toggle of your own: {taken}")
    changes = {value: change for value, change in declared.values.items() if change}
    if not changes:
        raise UsageError(f"no value of the toggle {name!r} changes anything")
    return own_toggle(
        name,
        words={v: changes[v].arguments if v in changes else () for v in declared.values},
        environment={v: change.environment for v, change in changes.items()},
        kind=declared.kind,
        help=declared.help,
        component=declared.component,
        cost=declared.cost,
    )


def why_not_applicable(
    scenario: Scenario,
    table: Sequence[Toggle],
    name: str,
    value: str | None = None,
    or_one_of: Sequence[str] = (),
) -> str:
    """Return why there is no such toggle, or why it cannot have this value here; "" if it can.

    `or_one_of`: words that might have been meant in its place.
    """
    names = [entry.name for entry in table]
    if name not in names:
        return f"there is no toggle {name!r}{nearest(name, [*names, *or_one_of])}"
    if value is None:
        return ""
    ours = scenario.walked is not None
    walked = ("-m", "bisect", PIPELINE, scenario.walked or "", *scenario.arguments)
    command = walked if ours else scenario.command or ()
    environ: Mapping[str, str] = {}
    if ours or scenario.launcher:
        command = (_ANY_LAUNCHER, *command)
        environ = {"NNODES": str(scenario.nodes), "NPROC_PER_NODE": str(scenario.ranks)}
    try:
        apply_setting(command, {name: value}, table, environ, ours)
    except UsageError as error:
        return str(error)
    return ""
