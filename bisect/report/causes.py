"""The catalogue of causes in words: a list, and one of them explained."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ..base.facts import Level
from ..base.words import LEVELS, wrap_line, wrap_width
from ..diagnosis.causes.catalogue import CauseFamily
from ..diagnosis.causes.known_cause import KnownCause, Sign, find_level
from ..toggles.table import toggle
from ..toggles.toggle import Toggle

_OUTCOMES = {
    "hang": "hangs",
    "interrupted": "is interrupted",
    "crash": "crashes",
    "silent": "stands still",
    "slow": "is slow",
    "ok": "ends well",
}
_WIDTH = 100


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
    width = wrap_width(_WIDTH)
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
