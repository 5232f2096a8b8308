"""Frozen dataclasses from plain JSON that anybody may have changed since it was written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
_PLAIN = (str, int, bool, NoneType)


def made(kind: type[T], data: Any) -> T:
    """Return what `data`, a JSON object, says as a `kind`: of each field what its type wants.

    Raises ValueError for a field that is missing, unknown, or has another type.
    """
    if not isinstance(data, dict):
        raise ValueError(f"{data!r} is no object")
    hints = get_type_hints(kind)
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    for name in data:
        if name not in known:
            raise ValueError(f"there is no {name!r}")
    for name, field in known.items():
        if name not in data and field.default is field.default_factory is MISSING:
            raise ValueError(f"{name!r} is missing")
    found = {}
    for name, value in data.items():
        try:
            found[name] = _as(hints[name], value)
        except ValueError:
            raise ValueError(f"{name!r} cannot be {value!r}"[:200]) from None
    return kind(**found)


def _as(hint: Any, value: Any) -> Any:
    """Return a value as its type wants it. Raises ValueError."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _one_of(inner, value)
    if hint is Any:
        return value
    if origin is Literal and isinstance(value, str) and value in inner:
        return value
    if origin is tuple and isinstance(value, list):
        kinds = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return tuple(_as(kind, one) for kind, one in zip(kinds, value, strict=True))
    if origin is not None and issubclass(origin, Mapping) and isinstance(value, dict):
        return {name: _as(inner[1], one) for name, one in value.items()}
    if is_dataclass(hint) and isinstance(hint, type):
        return made(hint, value)
    if hint is float and type(value) in (int, float) and math.isfinite(value):
        return value
    if hint in _PLAIN and type(value) is hint:
        return value
    raise ValueError


def _one_of(hints: tuple[Any, ...], value: Any) -> Any:
    for hint in hints:
        try:
            return _as(hint, value)
        except ValueError:
            continue
    raise ValueError
