"""What a search asks, and what it is told: the words that its parts share.

A search is a generator: it yields an `Ask`, is sent the `Result`, and returns what it found. So it
knows nothing of processes, limits or interruptions; who drives it may stop at any question.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ..facts import Result, Setting

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
class Tried:
    """A question that was answered, by a start of the job or by what was recorded of one."""

    number: int  # from 1
    setting: Setting
    result: Result
    why: str
    again: bool = False  # one of the starts that confirm what was found


# Starts the job under a setting, for the reason given. None: stop, there is no result.
Test = Callable[[Setting, str], Result | None]
Steps = Generator[Ask, Result, T]


def by_values(setting: Setting) -> Hashable:
    """Return what two settings have in common if they name the same values."""
    return frozenset(setting.items())


def safest(choices: Mapping[str, Choice], names: frozenset[str]) -> dict[str, str]:
    """Return the setting with those toggles at their safest, in the order of `choices`."""
    return {name: choice.safest for name, choice in choices.items() if name in names}
