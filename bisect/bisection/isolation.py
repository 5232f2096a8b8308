"""What an isolation knows, while it goes on and at its end. Facts only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..facts import HangPlace, Setting, Trial

# "isolated": one change makes it go away, and that was confirmed. "hangs_all_safe": no remedy of
# the table avoids it. "no_hang": no start hung. "not_isolated": it hangs, and what avoids it is not
# known; `why` says what came in between. "interrupted": by a person; it can be resumed.
IsolationOutcome = Literal["isolated", "hangs_all_safe", "no_hang", "not_isolated", "interrupted"]


@dataclass(frozen=True)
class Change:
    """One toggle of the answer."""

    toggle: str
    component: str
    before: str | None  # its value as the user runs it, where that is known
    value: str
    cost: str  # what one gives up with it
    in_code: str = ""  # what to change in the code of a script of the user's own


@dataclass(frozen=True)
class Count:
    """How the starts under one setting ended."""

    starts: int
    hangs: int  # the hang in question
    others: int = 0  # neither that hang nor past it

    @property
    def passes(self) -> int:
        """Starts that came past the place in question."""
        return self.starts - self.hangs - self.others


@dataclass(frozen=True)
class Seen:
    """The hang in question as the first verdict on it tells it."""

    place: HangPlace
    number: int | None  # of the checkpoint
    title: str  # of the checkpoint, "" if unknown
    culprit: tuple[int, ...]
    cause: str | None  # id in the catalogue of causes
    cause_title: str
    component: str | None
    tries: tuple[str, ...]  # toggles that the verdict says to try, the most promising first
    waits_for: str = ""  # "lock"
    detail: str = ""  # "/home/ada/.cache/huggingface/...lock"
    world_size: int | None = None


@dataclass(frozen=True)
class Isolation:
    """The answer, or as much of it as is known so far."""

    outcome: IsolationOutcome
    command: tuple[str, ...]  # as the user runs it
    trials: tuple[Trial, ...]
    seconds: float  # that all starts took together
    seen: Seen | None = None  # None: nothing hung
    changes: tuple[Change, ...] = ()  # what makes it go away
    paste: str = ""  # the command with these changes, ready to paste
    with_it: Count | None = None  # when the answer was confirmed
    without: Count | None = None
    p_value: float | None = None  # of as large a difference, were there none
    confidence: float = 0.95
    confirm: int = 3
    flaky: bool = False  # hangs come and go
    companions: tuple[str, ...] = ()  # changes without which it fails in another way
    not_it: tuple[str, ...] = ()  # "strategy=ddp": still hangs with it
    harmful: tuple[str, ...] = ()  # "wandb=off": with it the job fails in another way
    unused: Mapping[str, str] = field(default_factory=dict)  # toggles not tried, and why
    described: tuple[str, ...] = ()  # what probes say: "hangs at 2 ranks, not at 1"
    why: str = ""  # a sentence, where it is not isolated
    next: str = ""  # the next step, as a sentence or a command
    options: Mapping[str, object] = field(default_factory=dict)  # as asked, for who resumes
    schema: int = 1

    @property
    def of_a_crash(self) -> bool:
        """Whether what avoids a crash was looked for, and no hang."""
        return bool(self.options.get("crash"))


def words(setting: Setting) -> str:
    """Return a setting as people write it: "wandb=offline num_workers=0"."""
    return " ".join(f"{name}={value}" for name, value in setting.items()) or "as you run it"
