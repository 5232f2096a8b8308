"""The history of a rank: which steps, phases, imports and waits it was in, or is in, from when to
when, and its silences within one step.

Of the steps of a script of the user's own there is no table beforehand, and ranks need not do
the same ones. They are matched by name and occurrence, and ordered by when any rank first began
them: a rank that ended a later one is further.

A rank that asks a server which takes 20 seconds for each answer shows nothing for as long, again
and again. That earlier silences ended by themselves says that this one may, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Literal

from .checkpoints import STARTUP_BY_NAME, Checkpoint, UserStep
from .events import Begin, End
from .lazy_dataclass import dataclass

if TYPE_CHECKING:
    from .rank_state import RankState


# "step": of a pipeline, numbered; "own step": of a script of the user's own; "phase": of a step;
# "import": of a heavy module; "wait": for other ranks; "training": past the first training steps of
# a script of the user's own.
StayKind = Literal["step", "own step", "phase", "import", "wait", "training"]
MOST_OPEN = 100  # stays inside one another


@dataclass
class Stay:
    """Something that a rank is in, or was. Times are monotonic."""

    kind: StayKind
    name: str  # of a phase, a module, a step of a user's own; what is waited for; else ""
    start: float
    number: int | None = None  # of the checkpoint, or of that before the barrier where it waits
    k: int = 0  # of a step of a user's own: which time it is, from 1
    title: str = ""  # of that
    checkpoint: str | None = None  # of the startup pipeline, to which that corresponds
    phase: str | None = None  # of that checkpoint
    end: float | None = None  # None: it is in it
    depth: int = 0  # how many others are around it
    is_left: bool = False  # it left the job in it, and never went on


@dataclass
class Stays:
    """The stays of one rank."""

    past: list[Stay] | None = None  # by their end; None: they are forgotten
    open: list[Stay] = field(default_factory=list)  # the innermost last
    importing: Stay | None = None  # announced, and not done

    def begin(self, stay: Stay) -> None:
        """It enters something, inside all that it is in."""
        if len(self.open) < MOST_OPEN:
            stay.depth = len(self.open)
            self.open.append(stay)

    def close(self, at: float, is_it: Callable[[Stay], bool], is_left: bool = False) -> None:
        """End the outermost for which that is true, and all inside it."""
        found = next((number for number, stay in enumerate(self.open) if is_it(stay)), None)
        if found is not None:
            for stay in self.open[found:]:
                stay.end, stay.is_left = at, is_left
                self._keep(stay)
            del self.open[found:]

    def close_all(self, at: float, is_left: bool = False) -> None:
        """End all of them."""
        self.close(at, lambda stay: True, is_left)

    def begin_own(self, event: Begin) -> None:
        """It begins a step of a script of the user's own; of one that it is in it tells again
        where who hears it may not know that.
        """
        if not any((stay.name, stay.k) == (event.step, event.k) for stay in self.open):
            stay = Stay("own step", event.step, event.at, k=event.k, title=event.title)
            stay.checkpoint, stay.phase = event.checkpoint, event.phase
            self.begin(stay)

    def train(self, at: float) -> None:
        """It trains, beyond the first steps; in a pipeline phases say as much."""
        if not any(stay.kind in ("step", "training") for stay in self.open):
            self.begin(Stay("training", "training", at))

    def announce(self, call: str, at: float) -> None:
        """It is about to make a call, or to import."""
        what, _, module = call.partition(" ")
        if what == "import" and module:
            self.importing = Stay("import", module, at)

    def add_import(self, module: str, took: float, at: float) -> None:
        """An import is done: part of what it lies in, or of the step that it was."""
        if self.past is None:
            return
        start, last = at - max(0.0, took), self.past[-1] if self.past else None
        depth, end = len(self.open), at
        if self.open:
            start = max(start, self.open[-1].start)
        elif last and last.kind == "own step" and last.end is not None and last.end > start:
            start, depth, end = max(start, last.start), last.depth + 1, last.end
        self._keep(Stay("import", module, start, end=end, depth=depth))

    def all(self) -> list[Stay]:
        """Return those that are remembered, by their start, those around others first."""
        found = [*(self.past or ()), *self.open]
        if self.importing is not None:
            self.importing.depth = len(self.open)
            found.append(self.importing)
        return sorted(found, key=lambda stay: (stay.start, stay.depth))

    def _keep(self, stay: Stay) -> None:
        if self.past is not None:
            self.past.append(stay)


# ---- the steps of scripts of users' own ----------------------------------------------------------

SCRIPT_RUNNING = "script"  # the name of what is between two steps
SCRIPT = STARTUP_BY_NAME["script"].number  # that a rank has reached with its first word
# The step of a rank that has reported none.
SILENT = UserStep(SCRIPT_RUNNING, "Script", "", 0.0, number=SCRIPT, without_deadline=True)


@dataclass(frozen=True)
class OpenStep:
    """A step that a rank is in, and since when (monotonic)."""

    step: UserStep
    k: int
    at: float
    call: str = ""


class UserSteps:
    """The order of the steps so far, and what beginnings and ends make of a rank."""

    def __init__(self, table: tuple[Checkpoint, ...]) -> None:
        """`table` is that of the startup pipeline: what steps may correspond to."""
        self._rows = {row.name: row for row in table}
        self._first = len(table)
        self._steps: dict[tuple[str, int], UserStep] = {}
        self._titles: dict[str, str] = {}  # as ranks say them

    def greet(self, member: RankState) -> None:
        """A rank says its first word."""
        self._moved(member, member.entered)
        member.steps_told = 0

    def begin(self, member: RankState, event: Begin) -> None:
        """A rank begins a step."""
        member.open = (*member.open, OpenStep(self._step(event), event.k, event.at, event.call))
        member.last_step, member.announced = event.title, event.call
        self._moved(member, event.at)

    def end(self, member: RankState, event: End) -> None:
        """A rank ends a step, and with it whatever it has begun inside and not ended."""
        key, at = (event.step, event.k), event.at
        inside = [(one.step.step, one.k) for one in member.open]
        if key not in inside:
            return
        ended = member.open[inside.index(key)]
        member.open = member.open[: inside.index(key)]
        member.last_step = self._titles.get(key[0], ended.step.title)
        member.raised = ended.call if event.failed else ""
        member.caught, member.caught_at = event.error or "", at
        if not event.failed:
            member.done = max(member.done, ended.step.number)
        took = member.took.get(ended.step.number, 0.0)
        member.took[ended.step.number] = max(took, at - ended.at)
        member.announced = ""
        self._moved(member, member.open[-1].at if member.open else at)

    def is_past(self, member: RankState, name: str) -> bool:
        """Return whether a rank is past the step, phase or checkpoint of that name: it has ended
        it, or a later one that it did instead.
        """
        numbers = [step.number for step in self._steps.values() if name in step.names]
        if not numbers or any(name in one.step.names for one in member.open):
            return False
        return member.quiet or member.done >= min(numbers)

    def title(self, number: int) -> str:
        """Return the title of the step of that number."""
        step = next((s.step for s in self._steps.values() if s.number == number), "")
        return self._titles.get(step, "")

    def _inside(self, member: RankState) -> UserStep:
        if member.open:
            known = [one.step for one in member.open if one.step.startup is not None]
            return known[-1] if known else member.open[-1].step
        after = f"Script after {member.last_step}" if member.last_step else "Script"
        return UserStep(SCRIPT_RUNNING, after, "", 0.0, number=member.step, without_deadline=True)

    def _moved(self, member: RankState, entered: float) -> None:
        member.entered, member.phase = entered, None
        member.steps_told += 1
        inside = member.open[-1].step.number - 1 if member.open else 0
        member.reached = max(SCRIPT, member.done, inside)
        member.step = member.reached + 1
        member.inside = self._inside(member)
        member.forget_looks()

    def _step(self, event: Begin) -> UserStep:
        key = event.step, event.k
        self._titles[event.step] = event.title
        if key not in self._steps:
            row = self._rows.get(event.checkpoint or "")
            self._steps[key] = UserStep(
                number=self._first + len(self._steps),
                name=row.name if row else event.step,
                title=row.title if row else event.title,
                component=event.component,
                deadline=event.deadline or 0.0,
                step=event.step,
                startup=row.number if row else None,
                phase=event.phase if row else None,
                without_deadline=event.deadline is None,
            )
        return self._steps[key]


@dataclass
class Silences:
    """Of one rank in one step. Times are monotonic."""

    longest: float = 0.0  # seconds, of those that ended by themselves
    worked_at: float = 0.0
    heard_at: float = 0.0  # when something came to it of which nobody can say what
    since: float = 0.0  # of the one that lasts
    seen_at: float | None = None  # by the last look; None: none lasts

    @property
    def lasted(self) -> float:
        """For how long (seconds) looks have seen the one that lasts; 0.0 if none does."""
        return 0.0 if self.seen_at is None else self.seen_at - self.since

    def sees_still(self, moved_at: float, now: float) -> None:
        """A look at `now` saw that nothing has moved since `moved_at`, nor computes."""
        self.since, self.seen_at = max(moved_at, self.worked_at, self.heard_at), now

    def sees_work(self, now: float) -> None:
        """A look saw it burn CPU: no silence, and no sign either that one has ended."""
        self.worked_at, self.seen_at = now, None

    def hears(self, at: float) -> None:
        """Something came at `at`, and it waits on: not silent, and no sign of getting on either."""
        self.heard_at, self.seen_at = at, None

    def ends(self, at: float, most: float) -> None:
        """It moves again at `at`. Of the time since the last look at most `most` seconds count: it
        may have moved meanwhile.
        """
        if self.seen_at is not None and at > self.seen_at:
            self.longest = max(self.longest, min(at, self.seen_at + most) - self.since)
        self.seen_at = None
