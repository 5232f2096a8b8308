"""What the ranks of a start told of the toggles whose calls they came to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ..steering import IN_CODE
from .toggle import Toggle

UNREACHED = "the script never reaches it"


@dataclass(frozen=True)
class Reached:
    """What a script of the user's own comes to, and what it says there itself."""

    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by toggle; (): not known
    in_code: frozenset[str] = frozenset()  # toggles whose variable the script overrules
    inside: bool = True  # a rank spoke at all: something can be changed inside it


def reached(told: Iterable[str], inside: bool = True) -> Reached:
    """Return what was told in the words of rank/steered: "num_workers=4", "wandb:in-code"."""
    values: dict[str, tuple[str, ...]] = {}
    in_code: set[str] = set()
    for word in told:
        if word.endswith(IN_CODE):
            in_code.add(word.removesuffix(IN_CODE))
            continue
        name, _, value = word.partition("=")
        known = values.get(name, ())
        values[name] = (*known, value) if value and value not in known else known
    return Reached(values, frozenset(in_code), inside)


def both(one: Reached | None, other: Reached | None) -> Reached | None:
    """Return what two starts told together."""
    if one is None or other is None:
        return one or other
    names = {**one.values, **other.values}
    values = {
        name: tuple(dict.fromkeys([*one.values.get(name, ()), *other.values.get(name, ())]))
        for name in names
    }
    return Reached(values, one.in_code | other.in_code, one.inside or other.inside)


def as_script_has_it(entry: Toggle, reached: Reached | None) -> str | None:
    """Return the least safe of the values that the script says itself, None where none is known."""
    said = reached.values.get(entry.name, ()) if reached is not None else ()
    if entry.accepts == "count":
        return max((v for v in said if v.isdigit()), key=int, default=None)
    order = entry.values
    return min(said, key=lambda v: order.index(v) if v in order else -1, default=None)


def why_unused(entry: Toggle, reached: Reached | None) -> str:
    """Return why a toggle changes nothing about the script, or ""."""
    if reached is None:
        return ""
    if not reached.inside:
        only_inside = entry.in_code and not entry.by_environment
        return "no rank told of itself, so that nothing is changed inside it" * bool(only_inside)
    unseen = entry.told and entry.name not in reached.values
    return UNREACHED if unseen else ""


def as_it_applies(entry: Toggle, reached: Reached | None) -> Toggle:
    """Return the toggle with the ways by which it is applied to the script."""
    if reached is None:
        return entry
    if not reached.inside:
        return replace(entry, in_code=())
    return replace(entry, overruled=entry.name in reached.in_code)
