"""The types of a pipeline's rows: checkpoint and phase. In a file of their own because ranks load
these and not the other facts.
"""

from __future__ import annotations

from .lazy_dataclass import dataclass


@dataclass(frozen=True)
class Phase:
    """A named part of a checkpoint's step, with a deadline of its own (None: never late)."""

    name: str
    component: str
    deadline: float | None


@dataclass(frozen=True)
class Checkpoint:
    """A row of a pipeline's table. Its number is its place there: the launcher's row is 0."""

    name: str
    title: str
    component: str
    deadline: float
    suspect: bool = False
    phases: tuple[Phase, ...] = ()
    number: int = 0

    @property
    def shown(self) -> int | None:
        """The number that people know it by; None where it has none."""
        return self.number

    @property
    def names(self) -> tuple[str, ...]:
        """The names that a time limit may be given by."""
        return (self.name,)

    @property
    def never_late(self) -> bool:
        """Whether it has no deadline of its own."""
        return False

    @property
    def words(self) -> str:
        """Its number and title, as far as it has them: "checkpoint 9 WandbLogger ready"."""
        return self.title if self.shown is None else f"checkpoint {self.shown} {self.title}"


@dataclass(frozen=True)
class UserStep(Checkpoint):
    """A step of a script of the user's own, which has no table: `number` is its place in the order
    in which the steps of all ranks were first begun.
    """

    step: str = ""  # "hub_download"
    startup: int | None = None  # the checkpoint of the startup pipeline that it corresponds to
    phase: str | None = None  # of that checkpoint
    without_deadline: bool = False

    @property
    def shown(self) -> int | None:
        """The number of the checkpoint that it corresponds to."""
        return self.startup

    @property
    def names(self) -> tuple[str, ...]:
        """The step's own, the phase's and the checkpoint's."""
        return tuple(name for name in (self.step, self.phase, self.name) if name)

    @property
    def never_late(self) -> bool:
        """Whether it has no deadline of its own."""
        return self.without_deadline


LAUNCHER = Checkpoint("launcher", "Ranks started", "launcher", 120)
