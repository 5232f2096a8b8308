"""What a known cause is: signs to look for, an explanation, and what avoids it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ...facts import Cause, Outcome
from .scene import Scene

MOST_CONFIDENT = 0.97  # stacks are a suspicion; only turning it off is a proof
LEAST_CONFIDENT = 0.5  # below this it is not said


@dataclass(frozen=True)
class Found:
    """A fact that speaks for a cause: a sentence for people, and values for the explanation.

    `trust`, from 0 to 1, is less where it is weaker than what its sign usually finds.
    """

    sentence: str
    values: Mapping[str, object] = field(default_factory=dict)
    trust: float = 1.0


Looks_for = Callable[[Scene], Found | None]


@dataclass(frozen=True)
class Sign:
    """Something to look for. `weight`: how far it alone would convince, from 0 to 1.

    A sign that is `needed` and not found rules the cause out; so does one that speaks `against`
    it and is found.
    """

    looks_for: Looks_for
    weight: float
    needed: bool = False
    against: bool = False

    @property
    def words(self) -> str:
        """What is looked for, as a person says it: the first sentences of the docstring."""
        first = (self.looks_for.__doc__ or "").strip().partition("\n\n")[0]
        return " ".join(first.split()).rstrip(".")


def said(words: str) -> Callable[[Looks_for], Looks_for]:
    """Return a decorator that gives a function made by another one its words (its docstring)."""

    def with_words(looks_for: Looks_for) -> Looks_for:
        looks_for.__doc__ = words
        return looks_for

    return with_words


def need(looks_for: Looks_for, weight: float) -> Sign:
    """Return a sign without which the cause is out of the question."""
    return Sign(looks_for, weight, needed=True)


def also(looks_for: Looks_for, weight: float) -> Sign:
    """Return a sign that makes the cause more likely."""
    return Sign(looks_for, weight)


def unless(looks_for: Looks_for) -> Sign:
    """Return a sign that rules the cause out."""
    return Sign(looks_for, 0.0, against=True)


@dataclass(frozen=True)
class KnownCause:
    """A cause that people reported, and how to recognise it.

    `why` is a sentence or two, filled in with the values of the signs that were found
    (str.format; a value that no sign gave leaves "?"). `toggles` are (toggle, value) of
    bisection/toggles.py; `avoid` what to do besides, in words or as commands, filled in too.
    """

    id: str
    title: str
    signs: tuple[Sign, ...]
    why: str
    avoid: tuple[str, ...] = ()
    toggles: tuple[tuple[str, str], ...] = ()
    references: tuple[str, ...] = ()  # public: "wandb/wandb#5214"
    outcomes: tuple[Outcome, ...] = ("hang", "interrupted")

    def match(self, scene: Scene) -> Cause | None:
        """Return the cause as this scene shows it, None if it does not."""
        if scene.verdict.outcome not in self.outcomes:
            return None
        facts: dict[Sign, Found] = {}
        # What rules it out comes first: most causes are out of the question at a glance.
        for sign in sorted(self.signs, key=lambda sign: not (sign.needed or sign.against)):
            fact = sign.looks_for(scene)
            if (sign.needed and fact is None) or (sign.against and fact is not None):
                return None
            if fact is not None:
                facts[sign] = fact
        found = [facts[sign] for sign in self.signs if sign in facts]
        doubt = math.prod(1.0 - weight for weight in _weights(facts))
        values = _Values({k: v for fact in found for k, v in fact.values.items()})
        return Cause(
            self.id,
            self.title,
            self.why.format_map(values),
            round(min(MOST_CONFIDENT, 1.0 - doubt), 2),
            tuple(dict.fromkeys(fact.sentence for fact in found if fact.sentence)),
            tuple(text.format_map(values) for text in self.avoid),
        )


def _weights(facts: Mapping[Sign, Found]) -> Iterable[float]:
    """Return how far each fact convinces: one that several signs show counts once."""
    told: dict[object, float] = {}
    for sign, fact in facts.items():
        what = fact.sentence or sign
        told[what] = max(told.get(what, 0.0), sign.weight * fact.trust)
    return told.values()


class _Values(dict[str, object]):
    def __missing__(self, key: str) -> str:
        return "?"


def likeliest(causes: list[Cause]) -> Cause | None:
    """Return the cause to name: the most confident, with more facts before fewer."""
    likely = [cause for cause in causes if cause.confidence >= LEAST_CONFIDENT]
    return max(likely, key=lambda c: (c.confidence, len(c.matched)), default=None)
