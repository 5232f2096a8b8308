"""Frozen facts as JSON and back: what one machine tells another."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_json(value: Any) -> Any:
    """Return a fact as JSON has it."""
    return asdict(value)


def from_json(kind: type[T], data: Mapping[str, Any]) -> T:
    """Return the fact of this kind that `data` (as of `to_json`) holds. What is not there has its
    default; what this version does not know is left out.

    Raises TypeError or ValueError if it is none.
    """
    return cast(T, _made(kind, data))


def _made(kind: Any, data: Any) -> Any:
    origin = get_origin(kind)
    if is_dataclass(kind):
        if not isinstance(data, Mapping):
            raise TypeError(f"{data!r} is no {kind}")
        hints = _hints(cast(Any, kind))
        names = {one.name for one in fields(kind) if one.init} & data.keys()
        return cast(Any, kind)(**{name: _made(hints[name], data[name]) for name in names})
    if origin in (Union, types.UnionType):
        return _one_of(get_args(kind), data)
    if origin is Literal:
        if data not in get_args(kind):
            raise ValueError(f"{data!r} is none of {get_args(kind)}")
        return data
    if origin is tuple:
        return _tuple(get_args(kind), data)
    if origin is not None:  # a mapping by text
        return {str(name): _made(get_args(kind)[1], value) for name, value in data.items()}
    return _plain(kind, data)


def _one_of(kinds: tuple[Any, ...], data: Any) -> Any:
    if data is None:
        return None
    return _made(next(kind for kind in kinds if kind is not types.NoneType), data)


def _tuple(kinds: tuple[Any, ...], data: Any) -> tuple[Any, ...]:
    if not isinstance(data, list | tuple):
        raise TypeError(f"{data!r} is no list")
    if kinds[-1:] == (Ellipsis,):
        return tuple(_made(kinds[0], one) for one in data)
    return tuple(_made(kind, one) for kind, one in zip(kinds, data, strict=True))


def _plain(kind: Any, data: Any) -> Any:
    if kind is float and isinstance(data, int):
        return float(data)
    if not isinstance(data, kind):
        raise TypeError(f"{data!r} is no {kind.__name__}")
    return data


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
