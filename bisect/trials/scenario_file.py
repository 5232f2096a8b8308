"""Scenario files: found by name or path, read, and what is wrong with one in a sentence.

Loading one executes nothing and expands nothing. An error names file, line, the wrong word and the
nearest right one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.command_words import PIPELINE
from ..base.errors import HangbisectError, UsageError, nearest
from ..base.pipeline import PIPELINES
from ..base.place import find_place
from ..base.words import format_bytes
from ..rank import arguments

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from ..search.scenario import Scenario
    from .yaml_text import Document
    from .yaml_text import KeyPath as Way

INSTALL = "Install what is needed: pip install PyYAML junitparser pydantic"
HOW_TO = "All keys: docs/reference/scenario-files.md"
_ENDS = (".yaml", ".yml")
_MOST_BYTES = 1 << 20
_MOST_OF_A_VALUE = 60  # characters of a wrong value that a sentence shows


class MissingLibrary(HangbisectError):
    """What scenario files need is not installed."""

    help = INSTALL


def require_modules(*modules: str) -> None:
    """Raise MissingLibrary unless these libraries are installed."""
    for name in modules:
        if find_spec(name) is None:
            raise MissingLibrary(f"scenario files need {name}, which is not installed")


def load_scenario(word: str) -> Scenario:
    """Return what a scenario file says, named by its path or, one of ours, by its name.

    Raises UsageError for a file that is not there or not right, MissingLibrary where pydantic or
    PyYAML is not installed.
    """
    return parse_scenario(read_text(find_scenario(word)), word)


def locate_value(word: str, path: Way) -> str:
    """Return where a value stands in a scenario file that can be loaded: "my.yaml:7"."""
    from . import yaml_text

    return f"{word}:{yaml_text.read_yaml(read_text(find_scenario(word))).line(path)}"


def scenario_folder() -> Path:
    """Return the folder of our own: installed beside our modules, in a checkout scenarios/."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "scenario_files"
    return installed if installed.is_dir() else package.parent / "scenarios"


def scenario_names() -> tuple[str, ...]:
    """Return the names of our own: recommended, wandb, ..."""
    return tuple(sorted(file.stem for file in scenario_folder().glob("*.yaml")))


def find_scenario(word: str) -> Path:
    """Return the file that `word` names. Raises UsageError if there is none."""
    if word in scenario_names():
        return scenario_folder() / f"{word}.yaml"
    path = Path(word)
    if "\0" not in word and os.path.exists(path):
        return path
    beside = []
    if os.sep in word or path.suffix in _ENDS:
        where = path.parent
        beside = [str(p) for p in where.glob("*") if p.suffix in _ENDS] if where.is_dir() else []
    known = [*scenario_names(), *beside]
    by_stem = {Path(one).stem: one for one in reversed(known)}
    close = get_close_matches(path.stem, by_stem, 1)  # what files end in is no likeness
    near = f"; did you mean {by_stem[close[0]]!r}?" if close else ""
    raise UsageError(
        f"there is no scenario {word!r}{near}",
        f"By name there are {', '.join(scenario_names())}; any other is named by its path.",
    )


def read_text(file: Path) -> str:
    """Return the text of a file. Raises UsageError if it cannot be read, or is no text."""
    try:
        # Neither a FIFO nor a device, which could be waited for without end.
        if not stat.S_ISREG(os.stat(file).st_mode):
            raise UsageError(f"{file} is no file but a {_kind_of_file(file)}")
        with open(file, "rb") as opened:
            raw = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    if len(raw) > _MOST_BYTES:
        raise UsageError(
            f"{file}:1: it has more than {format_bytes(_MOST_BYTES)}; a scenario is small"
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{file}:{line}: it is not UTF-8: byte {raw[error.start]:#04x}", HOW_TO
        ) from None


def _kind_of_file(file: Path) -> str:
    return "folder" if file.is_dir() else "pipe or a device"


def parse_scenario(text: str, file: str) -> Scenario:
    """Return what `text` says; `file` is named in errors. Raises UsageError, MissingLibrary."""
    require_modules("pydantic", "yaml")
    from pydantic import ValidationError

    from ..search.scenario import Scenario
    from ..search.scenario_checks import find_mistakes
    from . import matrix_launch, yaml_text

    try:
        document = yaml_text.read_yaml(text)
    except yaml_text.UnreadableYaml as error:
        raise UsageError(f"{file}:{error.line}: {error.fact}", HOW_TO) from None
    try:
        scenario = Scenario.model_validate(document.value)
    except ValidationError as error:
        # A word that is misspelt explains one that is missing.
        each = sorted(error.errors(include_url=False), key=lambda one: one["type"] == "missing")
        raise _first_error(file, [_explain_malformed(document, one) for one in each]) from None
    each_wrong = find_mistakes(scenario, matrix_launch.launcher_names())
    found = [(document.line(w.path, of_key=w.of_key), w.fact) for w in each_wrong]
    if not found:
        found = [(document.line(path), fact) for path, fact in _find_wrong_words(scenario)]
    if found:
        raise _first_error(file, found)
    return scenario


def _first_error(file: str, found: Sequence[tuple[int, str]]) -> UsageError:
    """Return the error for what comes first in the file."""
    line, fact = min(found, key=lambda each: each[0])
    return UsageError(f"{file}:{line}: {fact}", HOW_TO)


def _explain_malformed(document: Document, error: ErrorDetails) -> tuple[int, str]:
    """Return line and fact for one of pydantic's findings."""
    from ..search.scenario import FACTS_BY_ERROR, keys_at

    path, kind = error["loc"], error["type"]
    if not path:
        return document.line(()), "it is no mapping of keys: pipeline, command, settings, ..."
    name = next(word for word in reversed(path) if isinstance(word, str))
    if kind == "extra_forbidden":
        known = keys_at(path[:-1])
        fact = f"there is no key {_format_value(name)}{nearest(name, known)}"
        return document.line(path, of_key=True), f"{fact} (here: {', '.join(known)})"
    if kind == "missing":
        return document.line(path[:-1]), f"{_format_value(name)} is missing"
    # "Value error, " stands before what our own readers say.
    why = FACTS_BY_ERROR.get(kind) or error["msg"].removeprefix("Value error, ")
    value = error["input"]
    if isinstance(value, dict | list) and not why.startswith("it is "):  # of something in it
        part = next((key for key in value if why.startswith(repr(key))), None)
        line = document.line(path) if part is None else document.line((*path, part), of_key=True)
        return line, f"{name!r}: {why}"
    return document.line(path), f"{name!r} cannot be {_format_value(value)}: {why}"


def _format_value(value: object) -> str:
    """Return a wrong value as the file's author knows it, cut short."""
    if value is None:
        return "empty"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= _MOST_OF_A_VALUE else f"{text[:_MOST_OF_A_VALUE]}..."


def _find_wrong_words(scenario: Scenario) -> Iterator[tuple[Way, str]]:
    """Yield what is wrong with the words for a pipeline of ours, as its command line says it."""
    if scenario.walked is None or scenario.walked not in PIPELINES:
        return
    each: list[tuple[Way, tuple[str, ...]]] = [(("arguments",), scenario.arguments)]
    for number, one in enumerate(scenario.settings):
        if one.arguments:
            where = ("settings", number, "arguments")
            each.append((where, (*scenario.arguments, *one.arguments)))
    for path, words in each:
        try:
            if "-h" in words or "--help" in words:
                raise UsageError("--help walks nothing")
            arguments.parse_walk_arguments([PIPELINE, scenario.walked, *words], find_place({}), {})
        except UsageError as error:
            yield path, str(error)
