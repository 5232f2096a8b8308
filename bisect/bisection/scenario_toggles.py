"""The toggles that a scenario has: those of the table, and those of its own script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import UsageError
from ..nearest import nearest
from .applying import applied
from .flags import PIPELINE
from .own_toggle import own_toggle
from .scenario import OwnToggle, Scenario
from .toggle import Toggle
from .toggles import TOGGLES

# Only to see whether a value can be applied: what is started later has the real launcher.
_ANY_LAUNCHER = "launchers/any"


def toggles(scenario: Scenario) -> tuple[Toggle, ...]:
    """Return all toggles, the scenario's own last. Raises UsageError for one that cannot be."""
    return (*TOGGLES, *(own(name, declared) for name, declared in scenario.own_toggles.items()))


def own(name: str, declared: OwnToggle) -> Toggle:
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


def why_not(
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
        applied(command, {name: value}, table, environ, ours)
    except UsageError as error:
        return str(error)
    return ""
