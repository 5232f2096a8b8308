"""Simulated hangs: boolean expressions over toggles, for the search and its tests.

A job under a setting "passes" where the expression for it holds, ends "other" where one of the
conditions for a crash holds, and hangs elsewhere. A leaf of an expression holds where its toggle is
at its level or at a safer one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random

from hangbisect.base.verdict_facts import Result, Setting
from hangbisect.search.trial_results import Choice

Levels = Mapping[str, int]  # 0: as the user runs it


@dataclass(frozen=True)
class Expression:
    """Of kind "leaf": `name` is at `level` or safer; "not", "and", "or": of `parts`."""

    kind: str
    parts: tuple[Expression, ...] = ()
    name: str = ""
    level: int = 1

    def holds(self, levels: Levels) -> bool:
        """Return whether it holds."""
        if self.kind == "leaf":
            return levels.get(self.name, 0) >= self.level
        holding = (part.holds(levels) for part in self.parts)
        if self.kind == "and":
            return all(holding)
        return any(holding) if self.kind == "or" else not any(holding)

    def names(self) -> frozenset[str]:
        """Return the toggles in it."""
        return frozenset({self.name} - {""}).union(*(part.names() for part in self.parts))


@dataclass(frozen=True)
class Hang:
    """A job that hangs."""

    choices: tuple[Choice, ...]
    avoided: Expression
    crashes: tuple[Expression, ...] = ()

    def result(self, setting: Setting) -> Result:
        """Return what comes of a setting."""
        values = {choice.name: choice.values for choice in self.choices}
        levels = {name: values[name].index(value) + 1 for name, value in setting.items()}
        if any(crash.holds(levels) for crash in self.crashes):
            return "other"
        return "pass" if self.avoided.holds(levels) else "hang"

    def safest(self, names: Sequence[str]) -> Setting:
        """Return the setting with these toggles at their safest."""
        return {c.name: c.safest for c in self.choices if c.name in names}

    def all_safe(self) -> Result:
        """Return what comes of all toggles at their safest."""
        return self.result({choice.name: choice.safest for choice in self.choices})


def toggles(random: Random, count: int, levels: int = 1) -> tuple[Choice, ...]:
    """Return `count` toggles with up to `levels` safer values each."""
    return tuple(
        Choice(f"t{n}", tuple(f"v{v}" for v in range(1, random.randint(1, levels) + 1)))
        for n in range(count)
    )


def leaf(random: Random, choice: Choice) -> Expression:
    """Return a leaf of that toggle, at some level."""
    return Expression("leaf", name=choice.name, level=random.randint(1, len(choice.values)))


def monotone(random: Random, choices: Sequence[Choice], leaves: int) -> Expression:
    """Return a random tree of "and" and "or" with that many leaves."""
    if leaves == 1:
        return leaf(random, random.choice(choices))
    left = random.randint(1, leaves - 1)
    parts = (monotone(random, choices, left), monotone(random, choices, leaves - left))
    return Expression(random.choice(("and", "and", "or")), parts)


def with_not(random: Random, choices: Sequence[Choice], leaves: int) -> Expression:
    """Return a random tree of "and", "or" and "not" with that many leaves."""
    if leaves == 1:
        one = leaf(random, random.choice(choices))
        return Expression("not", (one,)) if random.random() < 0.25 else one
    left = random.randint(1, leaves - 1)
    parts = (with_not(random, choices, left), with_not(random, choices, leaves - left))
    whole = Expression(random.choice(("and", "or")), parts)
    return Expression("not", (whole,)) if random.random() < 0.15 else whole


def crash(random: Random, choices: Sequence[Choice]) -> Expression:
    """Return a reason to crash: one toggle; two together; or one without another."""
    one, other = (Expression("leaf", name=choice.name) for choice in random.sample(choices, 2))
    without = Expression("not", (other,))
    return random.choice((one, Expression("and", (one, other)), Expression("and", (one, without))))


def monotone_hang(random: Random, most: int = 40, levels: int = 1) -> Hang:
    """Return a hang that no safer value brings about."""
    choices = toggles(random, random.randint(1, most), levels)
    return Hang(choices, monotone(random, choices, random.randint(1, 8)))


def crashing_hang(random: Random, most: int = 40) -> Hang:
    """Return the same with settings that crash; as it is run, it hangs."""
    choices = toggles(random, random.randint(2, most))
    crashes = tuple(crash(random, choices) for _ in range(random.randint(1, 4)))
    return Hang(choices, monotone(random, choices, random.randint(1, 6)), crashes)


def any_hang(random: Random, most: int = 40) -> Hang:
    """Return a hang that safer values may bring about; as it is run it hangs, all safe passes."""
    while True:
        choices = toggles(random, random.randint(1, most))
        hang = Hang(choices, with_not(random, choices, random.randint(1, 16)))
        if hang.result({}) == "hang" and hang.all_safe() == "pass":
            return hang


def smaller_that_passes(hang: Hang, change: Setting) -> Setting | None:
    """Return a part of a change that passes as well, None if there is none."""
    for size in range(len(change)):
        for names in combinations(change, size):
            part = {name: change[name] for name in names}
            if hang.result(part) == "pass":
                return part
    return None


def can_pass(hang: Hang) -> bool:
    """Return whether any set of toggles at their safest passes. Looks at all that matter."""
    names = sorted(hang.avoided.names().union(*(crash.names() for crash in hang.crashes)))
    return any(
        hang.result(hang.safest(some)) == "pass"
        for size in range(1, len(names) + 1)
        for some in combinations(names, size)
    )
