"""Frozen facts from plain JSON, fast enough for the looks at a thousand ranks: what a type wants is
worked out once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

Reader = Callable[[Any], Any]


@cache
def reader(kind: Any) -> Reader:
    """Return what makes a value of type `kind` of JSON. What is not there has its default; what
    this version does not know is left out. It raises TypeError or ValueError for what is none.
    """
    origin, inside = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return _of_dataclass(kind)
    if origin in (Union, UnionType):
        return _or_none(reader(next(one for one in inside if one is not NoneType)))
    if origin is Literal:
        return _one_of(frozenset(inside))
    if origin is tuple:
        return _of_tuple(inside)
    if origin is not None and issubclass(origin, Mapping):
        return _by_name(reader(inside[1]))
    if kind is object:
        return lambda data: data
    return _number if kind is float else _plain(kind)


def _of_dataclass(kind: Any) -> Reader:
    hints = get_type_hints(kind)
    readers = [(one.name, reader(hints[one.name])) for one in fields(kind) if one.init]

    def read(data: Any) -> Any:
        if type(data) is not dict:
            raise TypeError(f"{data!r:.100} is no {kind.__name__}")
        return kind(**{name: read_one(data[name]) for name, read_one in readers if name in data})

    return read


def _of_tuple(inside: tuple[Any, ...]) -> Reader:
    many = inside[-1:] == (Ellipsis,)
    readers = [reader(one) for one in inside if one is not Ellipsis]

    def read(data: Any) -> tuple[Any, ...]:
        if type(data) is not list:
            raise TypeError(f"{data!r:.100} is no list")
        if many:
            return tuple(map(readers[0], data))
        return tuple(one(value) for one, value in zip(readers, data, strict=True))

    return read


def _or_none(inside: Reader) -> Reader:
    return lambda data: None if data is None else inside(data)


def _one_of(words: frozenset[Any]) -> Reader:
    def read(data: Any) -> Any:
        if type(data) is not str or data not in words:
            raise ValueError(f"{data!r:.100} is none of {sorted(words)}")
        return data

    return read


def _by_name(inside: Reader) -> Reader:
    return lambda data: {str(name): inside(value) for name, value in dict(data).items()}


def _number(data: Any) -> float:
    if type(data) not in (float, int):
        raise TypeError(f"{data!r:.100} is no number")
    return float(data)


def _plain(kind: type) -> Reader:
    def read(data: Any) -> Any:
        if type(data) is not kind:
            raise TypeError(f"{data!r:.100} is no {kind.__name__}")
        return data

    return read
