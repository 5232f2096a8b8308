"""The two catalogues in words, as lists and one entry explained: known causes, and toggles."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from ..base.pipeline import PIPELINES
from ..base.variables import VARIABLE as STEER
from ..base.verdict_facts import Level
from ..base.words import LEVELS, wrap_line, wrap_width
from ..diagnosis.causes.catalogue import CauseFamily
from ..diagnosis.causes.known_cause import KnownCause, Sign, find_level
from ..toggles.table import toggle
from ..toggles.toggle import ANY, VARIABLES, Toggle

_OUTCOMES = {
    "hang": "hangs",
    "interrupted": "is interrupted",
    "crash": "crashes",
    "silent": "stands still",
    "slow": "is slow",
    "ok": "ends well",
}
_CAUSE_WIDTH = 100


def list_causes(families: Sequence[CauseFamily]) -> str:
    """Return all causes, one a line, family by family."""
    widest = max(len(known.id) for family in families for known in family.causes)
    lines = []
    for family in families:
        lines += ["", family.title]
        lines += [f"  {known.id:{widest}}  {known.title}" for known in family.causes]
    return "\n".join(lines[1:])


def explain_cause(known: KnownCause, family: CauseFamily) -> str:
    """Return one cause: why it happens, how it is recognised, what avoids it, who reported it."""
    width = wrap_width(_CAUSE_WIDTH)
    parts = [f"{known.id}: {known.title}", f"  ({family.title})", ""]
    parts += [*wrap_line(f"  {with_names(known.why)}", width, 2), ""]
    parts += [f"Recognised when a job {outcomes(known)}, by", ""]
    signs = [f"  - {sign_in_words(sign)}" for sign in known.signs]
    parts += [line for text in signs for line in wrap_line(text, width, 4)]
    parts += ["", *wrap_line(f"  {levels_in_words(known)}", width, 2), "", "What avoids it", ""]
    avoid = [with_names(text) for text in known.avoid]
    avoid += [f"{usage} ({cost})" for usage, cost in settings(known)]
    parts += [line for text in avoid for line in wrap_line(f"  - {text}", width, 4)]
    if known.references:
        parts += ["", "Reported", ""]
        parts += [f"  {link(reference)}" for reference in known.references]
    return "\n".join(parts)


def cause_json(known: KnownCause, family: CauseFamily) -> dict[str, Any]:
    """Return one cause as JSON has it."""
    return {
        "id": known.id,
        "family": family.name,
        "title": known.title,
        "why": known.why,
        "outcomes": list(known.outcomes),
        "signs": [
            {"words": sign.words, "kind": kind_of(sign), "proves": sign.proves}
            for sign in known.signs
        ],
        "avoid": list(known.avoid),
        "toggles": [{"toggle": name, "value": value} for name, value in known.toggles],
        "references": [link(reference) for reference in known.references],
    }


# ---- parts, for pages as well --------------------------------------------------------------------


def kind_of(sign: Sign) -> str:
    """Return "needed", "supporting" or "against"."""
    return "against" if sign.against else "needed" if sign.needed else "supporting"


def sign_in_words(sign: Sign) -> str:
    """Return a sign as an entry of a list."""
    ends = {"needed": "", "supporting": " (makes it likelier)", "against": " (rules it out)"}
    return sign.words + ends[kind_of(sign)] + (" (then it is seen)" if sign.proves else "")


def levels_in_words(known: KnownCause) -> str:
    """Return how much a verdict says that it knows, with the signs that are needed and with all."""
    least, most = (LEVELS[level] for level in find_levels(known))
    return f"Level: {least}." if least == most else f"Level: {least}, or {most} with all signs."


def find_levels(known: KnownCause) -> tuple[Level, Level]:
    """Return the level of a cause with the signs that are needed, and with all."""
    return _level_of([s for s in known.signs if s.needed]), _level_of(known.signs)


def _level_of(signs: Sequence[Sign]) -> Level:
    agreement = 1.0 - math.prod(1.0 - sign.weight for sign in signs)
    return find_level(any(sign.proves for sign in signs), agreement)


def outcomes(known: KnownCause) -> str:
    """Return in which ends of a job a cause is looked for: "hangs or crashes"."""
    words = [_OUTCOMES[outcome] for outcome in known.outcomes]
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def settings(known: KnownCause) -> Iterator[tuple[str, str]]:
    """Yield the option of our pipelines, or the variable, and its cost for each toggle that avoids
    a cause.
    """
    for name, value in known.toggles:
        entry: Toggle = toggle(name)
        if entry.flag:
            yield f"{entry.flag} {value}", f"in our pipelines; cost: {entry.cost}"
        else:
            yield f"{entry.variable}={value}", f"cost: {entry.cost}"


def link(reference: str) -> str:
    """Return the address of a public reference: an issue or a pull request, or an address."""
    owner, sign, number = reference.partition("#")
    if sign and "://" not in reference:
        return f"https://github.com/{owner}/issues/{number}"  # GitHub sends on to a pull request
    return reference


def with_names(text: str) -> str:
    """Return a text of a declaration with <name> in place of {name}."""
    return re.sub(r"\{(\w+)\}", lambda match: f"<{match[1].replace('_', ' ')}>", text)


_TOGGLE_WIDTH = 80
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
_BY_SERVER = "arguments of inference servers"
_TOLD = "told by the ranks when a script comes to it"


def list_toggles(table: Sequence[Toggle]) -> str:
    """Return all toggles, one a line, by the way they are applied."""
    widest = max(len(entry.name) for entry in table)
    width = wrap_width(_TOGGLE_WIDTH)
    lines = ["Values go from as you run it to safest; * is the default."]
    for title in (_BY_FLAG, _BY_VARIABLE, _BY_LAUNCHER, _BY_SERVER):
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
    width = wrap_width(_TOGGLE_WIDTH)
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
    for name in ("words", "own", "launcher", "overruled", "servers", "set_by"):
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
    return _TOLD if entry.reports_itself else ""


def needs(entry: Toggle) -> str:
    """Return what it changes nothing without, "" if there is no such thing."""
    wanted = [" or ".join(entry.needs)] if entry.needs else []
    wanted += ["a GPU"] * entry.gpu
    wanted += [entry.set_by] if entry.set_by else []
    return " and ".join(wanted)


def way(entry: Toggle) -> str:
    """Return how it is applied first of all."""
    if entry.launcher:
        return _BY_LAUNCHER
    if entry.servers:
        return _BY_SERVER
    return _BY_FLAG if entry.flag else _BY_VARIABLE


def ways(entry: Toggle) -> Iterator[str]:
    """Yield how it is applied: "--wandb VALUE (pipeline startup)"."""
    if entry.launcher:
        yield "--nproc_per_node, -n, --ntasks, -np, --num_gpus, --num_processes; NPROC_PER_NODE"
    for spelling in entry.servers:
        yield spelling.describe()
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
