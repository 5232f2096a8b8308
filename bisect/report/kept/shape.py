"""Plain JSON brought into the shape that it should have: it may be anybody's, and say anything."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

LONGEST = 16_384  # characters of a text in a verdict
LARGEST = 1 << 40  # of whole numbers: pids, ranks, bytes
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # of an escape, which need not have its other half
_CUT = " ... (cut)"


@dataclass(frozen=True)
class Optional:
    """Null, or of this shape."""

    shape: Any


@dataclass(frozen=True)
class OneOf:
    """One of these texts; what is none of them becomes the first."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class ByName:
    """An object with any names, whose values have one shape."""

    shape: Any


def decoded(data: bytes) -> Any:
    """Return what JSON in UTF-8 says, without numbers that are none and halves of characters.

    Raises ValueError if it is no JSON, or nested too deep.
    """
    text = data.decode("utf-8", "replace")
    try:
        found = json.loads(text, parse_constant=lambda _: None, parse_float=_finite)
        return _whole(found) if _SURROGATE.search(text) else found
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def fitted(shape: Any, value: Any, path: str, wrong: list[str]) -> Any:
    """Return `value` in this shape: a type, `[shape]`, `{name: shape}`, or one of those above.

    What does not fit is left out, or empty where it must be there, and its path is put in `wrong`.
    """
    fits, found = _as(shape, value, path, wrong)
    if not fits:
        wrong.append(path)
    return found


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_whole(one) for one in value]
    if isinstance(value, dict):
        return {_whole(name): _whole(one) for name, one in value.items()}
    return value


def _as(shape: Any, value: Any, path: str, wrong: list[str]) -> tuple[bool, Any]:
    """Return whether `value` fits, and what is made of it."""
    if isinstance(shape, Optional):
        return (True, None) if value is None else _or_null(shape, value, path, wrong)
    if isinstance(shape, OneOf):
        fits = isinstance(value, str) and value in shape.words
        return fits, value if fits else shape.words[0]
    if isinstance(shape, ByName):
        return _mapping(shape.shape, value, path, wrong)
    if isinstance(shape, list):
        return _list(shape[0], value, path, wrong)
    if isinstance(shape, dict):
        found = value if isinstance(value, dict) else {}
        made = {
            n: fitted(s, found[n], f"{path}{n}.", wrong) if n in found else _empty(s)
            for n, s in shape.items()
        }
        return isinstance(value, dict), made
    return _plain(shape, value, path, wrong)


def _or_null(shape: Optional, value: Any, path: str, wrong: list[str]) -> tuple[bool, Any]:
    fits, found = _as(shape.shape, value, path, wrong)
    return fits, found if fits else None


def _list(shape: Any, value: Any, path: str, wrong: list[str]) -> tuple[bool, Any]:
    if not isinstance(value, list):
        return False, []
    found = []
    for number, one in enumerate(value):
        fits, made = _as(shape, one, f"{path}{number}.", wrong)
        if fits:
            found.append(made)
        else:
            wrong.append(f"{path}{number}.")
    return True, found


def _mapping(shape: Any, value: Any, path: str, wrong: list[str]) -> tuple[bool, Any]:
    if not isinstance(value, dict):
        return False, {}
    found = {}
    for name, one in value.items():
        fits, made = _as(shape, one, f"{path}{name[:80]}.", wrong)
        if fits:
            found[name[:LONGEST]] = made
        else:
            wrong.append(f"{path}{name[:80]}.")
    return True, found


def _plain(shape: Any, value: Any, path: str, wrong: list[str]) -> tuple[bool, Any]:
    if shape is str:
        if isinstance(value, str) and len(value) > LONGEST:
            wrong.append(path)
            return True, value[:LONGEST] + _CUT
        return isinstance(value, str), value if isinstance(value, str) else ""
    if shape is bool:
        return isinstance(value, bool), value is True
    fits = type(value) in ((int,) if shape is int else (int, float)) and abs(value) < LARGEST
    return fits, shape(value) if fits else shape(0)


def _empty(shape: Any) -> Any:
    if isinstance(shape, Optional):
        return None
    return _as(shape, None, "", [])[1]
