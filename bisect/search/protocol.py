"""What a search asks, what it is told, and what it returns.

A search is a generator: it yields an `Ask`, is sent the `Result` of a start, and returns a
`SearchResult`. It knows nothing of processes, limits or interruptions; the caller that drives it
may stop at any question.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from ..base.facts import Result, Setting

T = TypeVar("T")


@dataclass(frozen=True)
class Choice:
    """A toggle, and its values that are safer than the one the user runs, the safest last."""

    name: str
    values: tuple[str, ...]  # at least one

    @property
    def safest(self) -> str:
        """Its last value."""
        return self.values[-1]


@dataclass(frozen=True)
class Ask:
    """A setting to start, and why. `again`: a new start, even if the result is known."""

    setting: Setting
    why: str
    again: bool = False


@dataclass(frozen=True)
class TriedSetting:
    """A question that was answered, by a start of the job or by what was recorded of one."""

    number: int  # from 1
    setting: Setting
    result: Result
    why: str
    again: bool = False  # one of the starts that confirm what was found


# Starts the job under a setting, for the reason given. None: stop, there is no result.
Test = Callable[[Setting, str], Result | None]
Steps = Generator[Ask, Result, T]


def setting_key(setting: Setting) -> Hashable:
    """Return what two settings have in common if they name the same values."""
    return frozenset(setting.items())


def safest_setting(choices: Mapping[str, Choice], names: frozenset[str]) -> dict[str, str]:
    """Return the setting with those toggles at their safest, in the order of `choices`."""
    return {name: choice.safest for name, choice in choices.items() if name in names}


SearchOutcome = Literal[
    "found",  # `change` makes the hang go away
    "passes",  # as the user runs it, it does not hang, or more seldom than is waited for
    "ends otherwise",  # as the user runs it, it is neither past the place nor hung there
    "not avoided",  # with every toggle at its safest it still hangs
    "harmed",  # with every toggle at its safest it ends otherwise, and no set was seen to pass
    "comes and goes",  # a setting hung and passed
    "not confirmed",  # `change` passed once; of the starts that confirm no one with it did, or none
    # without it hung, and nothing speaks against it
    "stopped",  # a limit, or whoever runs it, ended the search: `change` is the best so far
]
# How well it is known that no smaller change passes. "every": each part of it was tried. "implied":
# each part was tried, or belongs to a set that hung. "each": no toggle of it can be left out, and
# not all parts that lack more were tried. "": not looked at to the end.
Proof = Literal["every", "implied", "each", ""]


@dataclass(frozen=True)
class StartCounts:
    """How often a setting was started, and how often it hung."""

    hangs: int = 0
    starts: int = 0  # that hung or passed
    others: int = 0  # crashes and the like, beside them


@dataclass(frozen=True)
class ProbeResult:
    """What a probe says about the hang, everything else as the user runs it."""

    probe: str
    hangs: str | None  # the safest value tried with which it hangs; None: as the user runs it
    passes: str | None  # the least value with which it passes; None: with none
    result: Result  # with its safest value


@dataclass(frozen=True)
class SearchResult:
    """The end of a search. Sets of names are in the order of preference."""

    outcome: SearchOutcome
    # The smallest change: values by toggle. Empty: none is known.
    change: Mapping[str, str] = field(default_factory=dict)
    proof: Proof = ""
    # Of `change`: without this one it does not hang, it crashes or hangs elsewhere. It goes along,
    # and is not accused.
    companions: tuple[str, ...] = ()
    harmful: tuple[str, ...] = ()  # left out: their safest values do harm of their own
    ruled_out: tuple[str, ...] = ()  # it hung with these at their safest: not it
    not_needed: tuple[str, ...] = ()  # it passes without these, and nothing more is known of them
    with_change: StartCounts = StartCounts()  # the starts that confirm, and no others
    without: StartCounts = StartCounts()
    p_value: float | None = None  # Fisher's, one-sided, of these; None: none were made
    described: tuple[ProbeResult, ...] = ()
    tried: tuple[TriedSetting, ...] = ()

    @property
    def minimal(self) -> bool:
        """Whether no smaller change passes, as far as a hang does not come back by safer values."""
        return self.proof in ("every", "implied")
