"""The types of a pipeline's rows, checkpoint and phase, and the rows of the main pipeline:
everything that happens until a language model trains. Ranks load this file and little else.

Steps of a user's script are reported under the same rows, in ranks too. So this file is in `base/`.
What is done before each checkpoint is in pipelines/startup.py.
"""

from __future__ import annotations

from dataclasses import replace

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


# Deadlines in seconds: half a minute for what is local, minutes for what downloads, loads or
# compiles. W&B's is below its own time limit (init_timeout, 90 s), so that we see it waiting.
_PHASES = (
    Phase("launch", "fit", 60),
    Phase("process_group", "strategy", 120),
    Phase("prepare_data", "data", 600),
    Phase("setup", "data", 300),
    Phase("wrap", "strategy", 120),
    Phase("first_batch", "data", 120),
    Phase("first_backward", "fit", 300),
    Phase("first_step", "fit", 120),
    Phase("steady", "fit", None),
    Phase("teardown", "fit", 120),
)
_ROWS = (
    LAUNCHER,
    Checkpoint("script", "Script started", "interpreter", 30),
    Checkpoint("arguments", "Args parsed", "arguments", 30),
    Checkpoint("logs_directory", "Logs directory ready", "filesystem", 30),
    Checkpoint("tokenizer", "Tokenizer loaded", "hub", 300),
    Checkpoint("model", "Model created", "model", 900),
    Checkpoint("lightning_module", "LLMModule ready", "lightning", 120),
    Checkpoint("data_module", "DataModule ready", "data", 60),
    Checkpoint("accelerator", "Accelerator configured", "accelerator", 60),
    Checkpoint("wandb_logger", "WandbLogger ready", "wandb", 60, suspect=True),
    Checkpoint("memory_callback", "MemoryLoggingCallback ready", "callbacks", 30),
    Checkpoint("trainer", "Trainer ready", "trainer", 60, suspect=True),
    Checkpoint("training", "Training finished", "fit", 600, phases=_PHASES),
)
STARTUP = tuple(replace(row, number=number) for number, row in enumerate(_ROWS))
STARTUP_BY_NAME = {row.name: row for row in STARTUP}
