"""What differs between ranks, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..kept.differences import Difference, Topic
from ..words import brief
from .shown import Shown

_MOST = 12  # values of one thing
_MOST_THINGS = 80
_LONGEST = 240  # characters of a value
_TOPICS: dict[Topic, str] = {
    "host": "Hosts",
    "versions": "Versions",
    "python": "Python",
    "gpu": "GPUs",
    "environment": "Environment",
}


@dataclass(frozen=True)
class Value:
    words: str
    ranks: str
    is_set: bool


@dataclass(frozen=True)
class Thing:
    """Something of which ranks have different values, most ranks first."""

    name: str
    values: tuple[Value, ...]
    more: int  # values that are not shown


@dataclass(frozen=True)
class Topical:
    title: str
    things: tuple[Thing, ...]


def differing(found: Sequence[Difference], shown: Shown) -> list[Topical]:
    """Return what differs, by topic."""
    topics: dict[str, list[Thing]] = {}
    for one in found[:_MOST_THINGS]:
        topics.setdefault(_TOPICS[one.topic], []).append(_thing(one, shown))
    return [Topical(title, tuple(things)) for title, things in topics.items()]


def _thing(one: Difference, shown: Shown) -> Thing:
    values = list(one.values.items())
    told = [
        Value(_value(one.name, value, shown), brief(ranks), bool(value))
        for value, ranks in values[:_MOST]
    ]
    return Thing(one.name, tuple(told), len(values) - len(told))


def _value(name: str, value: str, shown: Shown) -> str:
    return shown.text(shown.value(name, value), _LONGEST) if value else "not set"
