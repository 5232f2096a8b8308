"""What a scenario file says: what to run, where, how long, and under which settings; and the values
that it may have.

The descriptions here are what docs/reference/scenario-files.md says of each key.

A file gives text, lists and mappings of text, and None where nothing stands. Each reader of a
value returns what it means, or raises ValueError with a fact that goes on after "KEY cannot be
VALUE: ".
"""

from __future__ import annotations

import math
import re
import shlex
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from ..base.command_words import FIRST_PIPELINE
from ..base.pipeline import PIPELINES


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
        default=None, description="look closely when nothing of a rank has moved for this long"
    )
    timeout: Timeouts = Field(
        default_factory=dict,
        description="deadline of every checkpoint, or a mapping from checkpoints and phases",
    )
    slow_limit: Deadlines | None = Field(
        default=None,
        description="a rank that only uses CPU in one place is hung after this many deadlines",
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
        description="at least two, from as you run it to safest; each with what it adds"
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
FACTS_BY_ERROR = {
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


_SHELL = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1", "2>"})
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_MOST_DIGITS = 9
_LONGEST_NAME = 60


def _check_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("it is a text")
    return value


def _check_value_name(value: Any) -> str:
    text = value if isinstance(value, str) else ""
    if not (text and len(text) <= _LONGEST_NAME and text.isprintable() and text == text.strip()):
        raise ValueError(f"it is a name: one line of 1 to {_LONGEST_NAME} characters")
    return text


def _program(value: Any) -> str:
    if not (isinstance(value, str) and value.strip()):
        raise ValueError("it is the name of a launcher or a path to one")
    return value


def _whole_from(least: int, value: Any) -> int:
    text = value if isinstance(value, str) else ""
    is_one = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    if not is_one or int(text) < least:
        raise ValueError(f"it is a whole number from {least}")
    return int(text)


def _above_zero(value: Any, unit: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < math.inf:
        raise ValueError(f"it is a number of {unit} above 0")
    return number


def _seconds(value: Any) -> float:
    return _above_zero(value, "seconds")


def _share(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0.5 <= number < 1:
        raise ValueError("it is a number from 0.5 to below 1")
    return number


def _check_words(value: Any) -> tuple[str, ...]:
    """Return the words of a command: a list as it is, a text split as a shell splits it."""
    if isinstance(value, list):
        if not all(isinstance(word, str) for word in value):
            raise ValueError("it is a list of words, or one line")
        return tuple(value)
    if not isinstance(value, str):
        raise ValueError("it is a list of words, or one line")
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise ValueError(f"it cannot be split into words: {error}") from None
    odd = next((word for word in words if word in _SHELL), "")
    if odd:
        raise ValueError(f"no shell reads it, and {odd!r} is for one: [bash, -c, '...'] starts one")
    if words and _ASSIGNED.match(words[0]):
        raise ValueError(f"no shell reads it: put {words[0]!r} under 'environment'")
    return tuple(words)


def _command(value: Any) -> tuple[str, ...]:
    words = _check_words(value)
    if not (words and words[0]):
        raise ValueError("it names no program")
    return words


def _several(value: Any) -> tuple[str, ...]:
    """Return the texts of a list; one text is a list of one."""
    found = value if isinstance(value, list) else [value]
    if not found or not all(isinstance(one, str) for one in found):
        raise ValueError("it is a value or a list of values")
    return tuple(found)


def _by_word(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("it is a mapping, NAME: VALUE")
    for name, one in value.items():
        if not isinstance(one, str):
            raise ValueError(f"{name!r} has no value that is a text or a number")
    return value


def _check_environment(value: Any) -> dict[str, str]:
    found = _by_word(value)
    wrong = next((name for name in found if not _VARIABLE.fullmatch(name)), None)
    if wrong is not None:
        raise ValueError(f"{wrong!r} is no name of a variable")
    return found


def _timeouts(value: Any) -> dict[str, float]:
    """Return seconds by checkpoint or phase, "" for every one."""
    if isinstance(value, dict):
        return {name: _seconds(one) for name, one in value.items()}
    return {"": _seconds(value)}


Text = Annotated[str, BeforeValidator(_check_text)]
Title = Annotated[str, BeforeValidator(lambda value: " ".join(_check_text(value).split()))]
Name = Annotated[str, BeforeValidator(_check_value_name)]
Program = Annotated[str, BeforeValidator(_program)]
Whole = Annotated[int, BeforeValidator(lambda value: _whole_from(1, value))]
Count = Annotated[int, BeforeValidator(lambda value: _whole_from(0, value))]
Seconds = Annotated[float, BeforeValidator(_seconds)]
Deadlines = Annotated[float, BeforeValidator(lambda value: _above_zero(value, "deadlines"))]
Share = Annotated[float, BeforeValidator(_share)]
Words = Annotated[tuple[str, ...], BeforeValidator(_check_words)]
Command = Annotated[tuple[str, ...], BeforeValidator(_command)]
Several = Annotated[tuple[str, ...], BeforeValidator(_several)]
ByWord = Annotated[dict[str, str], BeforeValidator(_by_word)]
Environment = Annotated[dict[str, str], BeforeValidator(_check_environment)]
Timeouts = Annotated[dict[str, float], BeforeValidator(_timeouts)]
