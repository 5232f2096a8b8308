"""The steps of a script of the user's own, as its ranks tell of them.

There is no table of them beforehand, and ranks need not do the same ones. They are matched by name
and occurrence, and ordered by when any rank first began them: whoever ended a later one is further.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..checkpoints import Checkpoint, OwnStep

if TYPE_CHECKING:
    from .members import Member

SCRIPT_RUNNING = "script"  # the name of what is between two steps
# The step of one that has told of none.
SILENT = OwnStep(1, SCRIPT_RUNNING, "Script", "", 0.0, without_deadline=True)
SCRIPT = 1  # the row of the table that a rank has reached with its first word


@dataclass(frozen=True)
class Open:
    """A step that a rank is in, and since when (monotonic)."""

    step: OwnStep
    k: int
    at: float


class OwnSteps:
    """The order of the steps so far, and what beginnings and ends make of a rank."""

    def __init__(self, table: tuple[Checkpoint, ...]) -> None:
        """`table` is that of the startup pipeline: what steps may correspond to."""
        self._rows = {row.name: row for row in table}
        self._first = len(table)
        self._steps: dict[tuple[str, int], OwnStep] = {}
        self._titles: dict[str, str] = {}  # as ranks say them

    def greet(self, member: Member) -> None:
        """A rank says its first word."""
        self._moved(member, member.entered)
        member.steps_told = 0

    def begin(self, member: Member, message: Mapping[str, Any], at: float) -> None:
        """A rank begins a step."""
        step, k = self._step(message), int(message["k"])
        member.open = (*member.open, Open(step, k, at))
        member.last_step = str(message["title"])
        member.announced = str(message.get("call") or "")
        self._moved(member, at)

    def end(self, member: Member, message: Mapping[str, Any], at: float) -> None:
        """A rank ends a step, and with it whatever it has begun inside and not ended."""
        key = str(message["step"]), int(message["k"])
        inside = [(one.step.step, one.k) for one in member.open]
        if key not in inside:
            return
        ended = member.open[inside.index(key)]
        member.open = member.open[: inside.index(key)]
        member.last_step = self._titles.get(key[0], ended.step.title)
        if not message.get("failed"):
            member.done = max(member.done, ended.step.number)
        took = member.took.get(ended.step.number, 0.0)
        member.took[ended.step.number] = max(took, at - ended.at)
        member.announced = ""
        self._moved(member, member.open[-1].at if member.open else at)

    def is_past(self, member: Member, name: str) -> bool:
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

    def _inside(self, member: Member) -> OwnStep:
        if member.open:
            known = [one.step for one in member.open if one.step.startup is not None]
            return known[-1] if known else member.open[-1].step
        after = f"Script after {member.last_step}" if member.last_step else "Script"
        return OwnStep(member.step, SCRIPT_RUNNING, after, "", 0.0, without_deadline=True)

    def _moved(self, member: Member, entered: float) -> None:
        member.entered, member.phase = entered, None
        member.steps_told += 1
        inside = member.open[-1].step.number - 1 if member.open else 0
        member.reached = max(SCRIPT, member.done, inside)
        member.step = member.reached + 1
        member.inside = self._inside(member)
        member.forget_looks()

    def _step(self, message: Mapping[str, Any]) -> OwnStep:
        key = str(message["step"]), int(message["k"])
        self._titles[key[0]] = str(message["title"])
        if key not in self._steps:
            row, deadline = self._rows.get(str(message.get("checkpoint"))), message.get("deadline")
            self._steps[key] = OwnStep(
                number=self._first + len(self._steps),
                name=row.name if row else key[0],
                title=row.title if row else str(message["title"]),
                component=str(message["component"]),
                deadline=float(deadline or 0.0),
                step=key[0],
                startup=row.number if row else None,
                phase=message.get("phase") if row else None,
                without_deadline=deadline is None,
            )
        return self._steps[key]
