"""What a scenario file says: what to run, where, how long, and under which settings.

The descriptions here are what docs/reference/scenario-files.md says of each key.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from ..pipelines import PIPELINES
from .flags import FIRST_PIPELINE
from .scenario_values import (
    ByWord,
    Command,
    Count,
    Deadlines,
    Environment,
    Name,
    Program,
    Seconds,
    Several,
    Share,
    Text,
    Timeouts,
    Title,
    Whole,
    Words,
)


class Part(BaseModel):
    """A mapping of a scenario file: no other keys than its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _said(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse a key with nothing behind it, where that would be taken for one left out."""
        name = info.field_name or ""
        if value is None and cls.model_fields[name].default is None:
            raise ValueError("leave the key out, or say what it is")
        return value


class Watch(Part):
    """Options of the watch, for every cell."""

    stall: Seconds | None = Field(
        default=None, description="look closely once nothing of a rank has moved for so long"
    )
    timeout: Timeouts = Field(
        default_factory=dict,
        description="deadline of every checkpoint, or a mapping from checkpoints and phases",
    )
    slow_limit: Deadlines | None = Field(
        default=None,
        description="a rank that burns CPU in the same place is hung after so many deadlines",
    )

    def options(self) -> dict[str, str]:
        """Return them as `hangbisect run` takes them, by name without the hyphens in front."""
        found = {"stall": self.stall, "slow-limit": self.slow_limit}
        texts = {name: f"{value:g}" for name, value in found.items() if value is not None}
        if self.timeout:
            each = sorted(self.timeout.items())  # the one for every checkpoint comes first
            texts["timeout"] = ",".join(f"{n}={s:g}" if n else f"{s:g}" for n, s in each)
        return texts


class Change(Part):
    """What a value of a toggle adds to the command. Neither: it is left as it is."""

    arguments: Words = Field(default=(), description="words after the command's own")
    environment: Environment = Field(default_factory=dict, description="variables that are set")


class OwnToggle(Part):
    """A toggle of one's own script."""

    values: dict[str, Change | None] = Field(
        description="at least two, from as one runs it to safest; each with what it adds"
    )
    component: Text = Field(
        default="own", description="what it is a part of, in the table of trials"
    )
    kind: Literal["remedy", "probe"] = Field(
        default="remedy", description="a change to live with, or one that only describes"
    )
    cost: Title = Field(default="", description="what one gives up with the safest value")
    help: Title = Field(default="", description="one line on what it changes")


class Setting(Part):
    """One cell of a matrix."""

    name: Name = Field(description="what the cell is called; no other has the same name")
    toggles: ByWord = Field(default_factory=dict, description="values by toggle; others stay")
    arguments: Words = Field(default=(), description="more words for the command")
    environment: Environment = Field(default_factory=dict, description="more variables")
    launcher: Program | None = Field(default=None, description="in the place of the file's")
    nodes: Whole | None = Field(default=None, description="in the place of the file's")
    ranks: Whole | None = Field(default=None, description="in the place of the file's")
    limit: Seconds | None = Field(default=None, description="in the place of the file's")


class Isolate(Part):
    """What `hangbisect isolate FILE` does with it; an argument there has the last word."""

    only: tuple[Text, ...] = Field(default=(), description="toggles to try; none: all that apply")
    without: tuple[Text, ...] = Field(default=(), description="toggles not to try")
    max_trials: Whole | None = Field(
        default=None, description="starts, then it ends with what is known"
    )
    max_time: Seconds | None = Field(default=None, description="seconds, then the same")
    confirm: Count | None = Field(
        default=None, description="starts with the answer, and without it"
    )
    confidence: Share | None = Field(default=None, description="of a hang that comes and goes")


class Scenario(Part):
    """A scenario file."""

    title: Title = Field(default="", description="one line on what it examines")
    pipeline: Text | None = Field(
        default=None, description=f"a pipeline of ours to walk: {', '.join(PIPELINES)}"
    )
    arguments: Words = Field(default=(), description="the pipeline's words, as on the command line")
    command: Command | None = Field(
        default=None, description="a command of your own, in the place of a pipeline"
    )
    launcher: Program | None = Field(
        default=None,
        description="its name (hangbisect's launchers/) or a path; torchrun for a pipeline. "
        "Without one a command is started as it is, with the launcher that is in it",
    )
    nodes: Whole = Field(default=1, description="for the launcher")
    ranks: Whole = Field(default=2, description="on each node, for the launcher")
    limit: Seconds | None = Field(
        default=None, description="seconds for a cell, then it is ended; an hour if nothing is said"
    )
    environment: Environment = Field(default_factory=dict, description="variables of every cell")
    watch: Watch = Field(default_factory=Watch, description="options of the watch")
    own_toggles: dict[str, OwnToggle] = Field(
        default_factory=dict, description="toggles of your own script, by name"
    )
    settings: tuple[Setting, ...] = Field(default=(), description="the cells, one after the other")
    axes: dict[str, Several] = Field(
        default_factory=dict,
        description="in the place of settings: values by toggle (or launcher, nodes, ranks), each "
        "of one with each of the others",
    )
    exclude: tuple[dict[str, Several], ...] = Field(
        default=(), description="combinations of the axes to leave out"
    )
    isolate: Isolate = Field(default_factory=Isolate, description="for hangbisect isolate FILE")

    @property
    def walked(self) -> str | None:
        """The pipeline that is walked; None: a command of the user's own is run."""
        return None if self.command else self.pipeline or FIRST_PIPELINE


# What is said where a mapping or a list stands in the wrong place, by the kind of pydantic's error.
KINDS = {
    "model_type": "it is a mapping with keys",
    "model_attributes_type": "it is a mapping with keys",
    "dict_type": "it is a mapping, NAME: VALUE",
    "list_type": "it is a list",
    "tuple_type": "it is a list",
    "literal_error": "it is remedy or probe",
}


def keys_at(path: tuple[str | int, ...]) -> tuple[str, ...]:
    """Return the keys that may stand in the mapping at `path`, () if any word may."""
    part: Any = Scenario
    for word in path:
        part = _below(part, word)
    return tuple(part.model_fields) if isinstance(part, type) and issubclass(part, Part) else ()


def _below(part: Any, word: str | int) -> Any:
    known = {
        (Scenario, "watch"): Watch,
        (Scenario, "isolate"): Isolate,
        (Scenario, "settings"): (Setting,),
        (Scenario, "own_toggles"): (OwnToggle,),
        (OwnToggle, "values"): (Change,),
    }
    if isinstance(part, tuple):  # a list of such, or a mapping from any word to such
        return part[0]
    return known.get((part, str(word)))
