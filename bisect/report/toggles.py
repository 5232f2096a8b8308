"""The table of toggles in words: all of them, or everything about one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from ..base.pipeline import PIPELINES
from ..base.steering import VARIABLE as STEER
from ..base.words import wrap_line, wrap_width
from ..toggles.toggle import ANY, VARIABLES, Toggle

_WIDTH = 80
_KINDS = {
    "remedy": "remedy: one can live with it",
    "probe": "probe: it makes nearly every hang vanish, so it describes more than it heals",
}
_READ = {"start": "at the start", "import": "at import", "run": "at run time"}
_BY_FLAG, _BY_VARIABLE, _BY_LAUNCHER = (
    "arguments of our pipelines",
    "variables of the environment, for any command",
    "the launcher's own words",
)
_TOLD = "told by the ranks when a script comes to it"


def list_toggles(table: Sequence[Toggle]) -> str:
    """Return all toggles, one a line, by the way they are applied."""
    widest = max(len(entry.name) for entry in table)
    width = wrap_width(_WIDTH)
    lines = ["Values go from as you run it to safest; * is the default."]
    for title in (_BY_FLAG, _BY_VARIABLE, _BY_LAUNCHER):
        lines += ["", title]
        for entry in table:
            if way(entry) == title:
                first = f"  {entry.name:{widest}}  {entry.kind:6}  "
                lines += wrap_line(first + values(entry), width, widest + 12)
    lines += ["", "`hangbisect toggles NAME` says what one costs and when it is read."]
    return "\n".join(lines)


def explain_toggle(entry: Toggle) -> str:
    """Return everything about one toggle."""
    rows = [
        ("values", values(entry)),
        *((one.pipeline, values(entry.read_by(one.pipeline))) for one in entry.variants),
        ("component", entry.component),
        ("kind", _KINDS[entry.kind]),
        ("applied", "; ".join(ways(entry))),
        ("read", format_reading(entry)),
        ("reached", reached(entry)),
        ("needs", needs(entry)),
        ("cost", entry.cost),
    ]
    width = wrap_width(_WIDTH)
    lines = [*wrap_line(f"{entry.name}: {entry.help}", width, 2), ""]
    for label, text in rows:
        if text:
            lines += wrap_line(f"  {label:10}  {text}", width, 14)
    return "\n".join(lines)


def toggle_json(entry: Toggle) -> dict[str, Any]:
    """Return a toggle as JSON has it."""
    data = asdict(entry)
    data["environment"] = [
        {"value": value, "variable": variable, "to": to}
        for value, variable, to in entry.environment
    ]
    data["in_code"] = [{"value": value, "change": change} for value, change in entry.in_code]
    # Of those that the table has, no more than `applied`.
    for name in ("words", "own", "launcher", "overruled"):
        del data[name]
    return {**data, "applied": list(ways(entry))}


# ---- parts, for pages as well --------------------------------------------------------------------


def values(entry: Toggle, mark: str = "") -> str:
    """Return the values in their order, the default with a star; `mark` goes around each."""
    words = [f"{mark}{v}{mark}{'*' * (v == entry.default)}" for v in entry.values]
    if entry.accepts == "count":
        words = [f"{mark}N{mark}", *words]
    elif entry.accepts == "host":
        words = [word.replace("excepted", "excepted:HOST") for word in words]
    more = {
        "strategy": ", or another that Lightning registers",
        "text": ", or any other",
    }
    return " > ".join(words) + more.get(entry.accepts, "")


def format_reading(entry: Toggle) -> str:
    """Return when its value is read for the last time, and by what."""
    return f"{_READ[entry.read]}: {entry.read_how}"


def reached(entry: Toggle) -> str:
    """Return how it is known that a script of the user's own comes to it, "" if it is not."""
    return _TOLD if entry.told else ""


def needs(entry: Toggle) -> str:
    """Return what it changes nothing without, "" if there is no such thing."""
    wanted = [" or ".join(entry.needs)] if entry.needs else []
    wanted += ["a GPU"] * entry.gpu
    return " and ".join(wanted)


def way(entry: Toggle) -> str:
    """Return how it is applied first of all."""
    if entry.launcher:
        return _BY_LAUNCHER
    return _BY_FLAG if entry.flag else _BY_VARIABLE


def ways(entry: Toggle) -> Iterator[str]:
    """Yield how it is applied: "--wandb VALUE (pipeline startup)"."""
    if entry.launcher:
        yield "--nproc_per_node, -n, --ntasks, -np, --num_gpus, --num_processes; NPROC_PER_NODE"
    if entry.flag:
        walked = [name for name in entry.pipelines if name in PIPELINES]
        readers = f"pipeline {', '.join(walked)}" if walked else "no pipeline reads it yet"
        yield f"{entry.flag} VALUE ({readers})"
    if entry.variable:
        yield f"{entry.variable}=VALUE"
    for value, variable, to in entry.environment:
        yield f"{variable}={to} is {value} in a script of yours"
    by_variable = {value for value, _, _ in entry.environment}
    for value, change in entry.in_code:
        if value not in by_variable:
            steered = "VALUE" if value == ANY else value
            yield f"{STEER}={entry.name}={steered}, in the code {change}"
    if entry.accepts == "host":
        yield f"excepted: HOST is added to {VARIABLES['excepted']}"
        yield f"off: {VARIABLES['off']} are emptied"
