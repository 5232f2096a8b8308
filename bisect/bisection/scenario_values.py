"""The values that a scenario file may have, and what is said of a wrong one.

A file gives text, lists and mappings of text, and None where nothing stands. Each reader returns
what they mean, or raises ValueError with a fact that goes on after "KEY cannot be VALUE: ".
"""

from __future__ import annotations

import math
import re
import shlex
from typing import Annotated, Any

from pydantic import BeforeValidator

_SHELL = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1", "2>"})
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_MOST_DIGITS = 9
_LONGEST_NAME = 60


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("it is a text")
    return value


def _title(value: Any) -> str:
    return " ".join(_text(value).split())


def _name(value: Any) -> str:
    text = value if isinstance(value, str) else ""
    if not (text and len(text) <= _LONGEST_NAME and text.isprintable() and text == text.strip()):
        raise ValueError(f"it is a name: one line of 1 to {_LONGEST_NAME} characters")
    return text


def _program(value: Any) -> str:
    if not (isinstance(value, str) and value.strip()):
        raise ValueError("it is the name of a launcher or a path to one")
    return value


def _whole(value: Any) -> int:
    return _whole_from(1, value)


def _count(value: Any) -> int:
    return _whole_from(0, value)


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


def _deadlines(value: Any) -> float:
    return _above_zero(value, "deadlines")


def _share(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0.5 <= number < 1:
        raise ValueError("it is a number from 0.5 to below 1")
    return number


def _words(value: Any) -> tuple[str, ...]:
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
    words = _words(value)
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


def _environment(value: Any) -> dict[str, str]:
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


Text = Annotated[str, BeforeValidator(_text)]
Title = Annotated[str, BeforeValidator(_title)]
Name = Annotated[str, BeforeValidator(_name)]
Program = Annotated[str, BeforeValidator(_program)]
Whole = Annotated[int, BeforeValidator(_whole)]
Count = Annotated[int, BeforeValidator(_count)]
Seconds = Annotated[float, BeforeValidator(_seconds)]
Deadlines = Annotated[float, BeforeValidator(_deadlines)]
Share = Annotated[float, BeforeValidator(_share)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
Command = Annotated[tuple[str, ...], BeforeValidator(_command)]
Several = Annotated[tuple[str, ...], BeforeValidator(_several)]
ByWord = Annotated[dict[str, str], BeforeValidator(_by_word)]
Environment = Annotated[dict[str, str], BeforeValidator(_environment)]
Timeouts = Annotated[dict[str, float], BeforeValidator(_timeouts)]
