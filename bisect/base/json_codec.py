"""JSON made of dataclasses, and dataclasses made of JSON: what a file of ours holds is said by its
type alone (docs/make_schemas.py makes the schemas from the same types).

A dataclass is an object, a tuple a list, a Mapping an object with any names, a Literal one of its
words, a rank what `write_rank` makes of it. A name that Python has taken ends in "_" in the type
alone (`try_`). What a type does not know is passed over: a newer version wrote it. What is not
there has its default. A field that had another name is read by that one too, which its metadata
says (`{"older": "ends"}`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from .identity import RankId, UnknownRank, read_rank, write_rank

_LARGEST = 1 << 64  # no number of ours is as large, and none that is no number
_PLAIN = {str: "a text", bool: "true or false"}
_MOST_TOLD = 3  # of what does not fit
_NOTHING = object()

Reader = Callable[[Any], Any]
_T = TypeVar("_T")


class Misfit(ValueError):
    """What does not fit, each with its place: "where[2].rank: a number was expected, found 'x'"."""

    def __init__(self, wrong: Sequence[tuple[str, str]], rest: Any = _NOTHING) -> None:
        """`rest` is what can be made of all that fits, if anything can."""
        super().__init__(wrong)
        self.wrong = wrong
        self.rest = rest

    def __str__(self) -> str:
        places = [
            f"{place}: {why}" if (place := path.lstrip(".")) else why
            for path, why in self.wrong[:_MOST_TOLD]
        ]
        left = len(self.wrong) - len(places)
        return "; ".join(places) + (f"; and {left} more" if left else "")

    def inside(self, place: str) -> list[tuple[str, str]]:
        """Return what does not fit, as what holds this tells it."""
        return [(place + path, why) for path, why in self.wrong]


def to_json(value: Any) -> Any:
    """Return `value` as JSON would read it back: objects, lists and plain values."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, UnknownRank):
        return write_rank(value)
    if is_dataclass(value):
        names = json_names(type(value))  # type: ignore[arg-type]  # every type is hashable
        return {key: to_json(getattr(value, name)) for name, key in names}
    if isinstance(value, Mapping):
        return {str(key): to_json(one) for key, one in value.items()}
    return [to_json(one) for one in value] if isinstance(value, (list, tuple)) else value


def to_short_json(value: Any) -> Any:
    """Return the same without the fields that have their defaults: `from_json` puts these back."""
    if value is None or isinstance(value, (str, int, float)):  # most are, and so it is half as long
        return value
    if is_dataclass(value) and not isinstance(value, UnknownRank):
        kind: Any = type(value)
        defaults, found = _defaults_of(kind), {}
        for name, key in json_names(kind):
            one = getattr(value, name)
            if name not in defaults or one != defaults[name]:
                found[key] = to_short_json(one)
        return found
    if isinstance(value, (list, tuple)):
        return [to_short_json(one) for one in value]
    if isinstance(value, Mapping):
        return {str(key): to_short_json(one) for key, one in value.items()}
    return to_json(value)


@cache
def _defaults_of(kind: Any) -> dict[str, Any]:
    made = {one.name: one.default_factory for one in fields(kind)}
    plain = {one.name: one.default for one in fields(kind) if one.default is not MISSING}
    return plain | {name: make() for name, make in made.items() if make is not MISSING}


def from_json(kind: type[_T], data: Any) -> _T:
    """Return what `data` says as a `kind`. Raises Misfit."""
    found: _T = _reader_for(kind)(data)  # type: ignore[arg-type]  # every type is hashable
    return found


def fit_json(kind: type[_T], data: Any) -> tuple[_T, str]:
    """Return what fits of `data` as a `kind`, and in a sentence what does not, "" if all does. What
    does not is left out of a list, and has its default elsewhere, or is empty.
    """
    try:
        return from_json(kind, data), ""
    except Misfit as error:
        return _empty(kind) if error.rest is _NOTHING else error.rest, str(error)


@cache
def json_names(kind: Any) -> tuple[tuple[str, str], ...]:
    """Return each field of a dataclass that is part of the JSON, with its name there; the number
    of the schema first.
    """
    names = [one.name for one in fields(kind) if one.metadata.get("json", True)]
    return tuple((one, one.rstrip("_")) for one in sorted(names, key=lambda one: one != "schema"))


@cache
def _reader_for(kind: Any) -> Reader:
    """Return what makes a value of type `kind` of JSON. What a type needs is worked out once: there
    are looks at a thousand ranks to be read.
    """
    origin, inside = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return _of_dataclass(kind)
    if origin in (Union, UnionType):
        first = next(one for one in inside if one is not NoneType)
        read = _rank if UnknownRank in inside else _reader_for(first)
        return (lambda data: None if data is None else read(data)) if NoneType in inside else read
    if origin is Literal:
        return _one_of(inside)
    if origin is tuple:
        return _of_list(_reader_for(inside[0])) if inside[-1] is ... else _of_fixed_list(inside)
    if origin is not None and issubclass(origin, Mapping):
        return _by_name(_reader_for(inside[1]))
    if kind in (int, float):
        return _make_number_reader(kind)
    return _plain(kind) if kind in _PLAIN else lambda data: data


def _of_dataclass(kind: Any) -> Reader:
    hints = get_type_hints(kind)
    older = {one.name: one.metadata.get("older", "") for one in fields(kind)}
    rows = [(name, key, older[name], _reader_for(hints[name])) for name, key in json_names(kind)]
    needed = {one.name for one in fields(kind) if one.default is one.default_factory is MISSING}

    def read(data: Any) -> Any:
        if type(data) is not dict:
            raise _misfit("an object", data)
        found: dict[str, Any] = {}
        wrong: list[tuple[str, str]] = []
        for name, key, older_key, read_one in rows:
            if older_key and key not in data:
                key = older_key
            if key in data:
                try:
                    found[name] = read_one(data[key])
                except Misfit as error:
                    wrong += error.inside(f".{key}")
                    if error.rest is not _NOTHING:
                        found[name] = error.rest
            elif name in needed:
                wrong.append((f".{key}", "is missing"))
        if not wrong:
            return kind(**found)
        empty = {name: _empty(hints[name]) for name in needed - found.keys()}
        raise Misfit(wrong, kind(**found, **empty))

    return read


def _of_list(read_one: Reader) -> Reader:
    def read(data: Any) -> tuple[Any, ...]:
        if type(data) is not list:
            raise _misfit("a list", data)
        found: list[Any] = []
        wrong: list[tuple[str, str]] = []
        for number, one in enumerate(data):
            try:
                found.append(read_one(one))
            except Misfit as error:
                wrong += error.inside(f"[{number}]")
                if error.rest is not _NOTHING:
                    found.append(error.rest)
        if wrong:
            raise Misfit(wrong, tuple(found))
        return tuple(found)

    return read


def _by_name(read_one: Reader) -> Reader:
    def read(data: Any) -> dict[str, Any]:
        if type(data) is not dict:
            raise _misfit("an object", data)
        found: dict[str, Any] = {}
        wrong: list[tuple[str, str]] = []
        for name, one in data.items():
            try:
                found[name] = read_one(one)
            except Misfit as error:
                wrong += error.inside(f".{name:.80}")
                if error.rest is not _NOTHING:
                    found[name] = error.rest
        if wrong:
            raise Misfit(wrong, found)
        return found

    return read


def _of_fixed_list(kinds: tuple[Any, ...]) -> Reader:
    readers = [_reader_for(one) for one in kinds]

    def read(data: Any) -> tuple[Any, ...]:
        if type(data) is not list or len(data) != len(readers):
            raise _misfit(f"a list of {len(readers)}", data)
        return tuple(read_one(one) for read_one, one in zip(readers, data))

    return read


def _one_of(words: tuple[Any, ...]) -> Reader:
    wanted = f"one of {', '.join(map(str, words))}" if len(words) > 1 else str(words[0])

    def read(data: Any) -> Any:
        if type(data) not in (str, int) or data not in words:
            raise _misfit(wanted, data)
        return data

    return read


def _make_number_reader(kind: type) -> Reader:
    kinds = (int,) if kind is int else (int, float)
    wanted = "a whole number" if kind is int else "a number"

    def read(data: Any) -> Any:
        if type(data) not in kinds or not -_LARGEST < data < _LARGEST:
            raise _misfit(wanted, data)
        return kind(data)

    return read


def _rank(data: Any) -> RankId:
    found = read_rank(data)
    if found is None:
        raise _misfit("a rank", data)
    return found


def _plain(kind: type) -> Reader:
    def read(data: Any) -> Any:
        if type(data) is not kind:
            raise _misfit(_PLAIN[kind], data)
        return data

    return read


def _misfit(wanted: str, data: Any) -> Misfit:
    words = {dict: "an object", list: "a list", NoneType: "null", bool: str(data).lower()}
    found = words.get(type(data), f"{data!r:.60}")
    return Misfit([("", f"{wanted} was expected, found {found}")])


def _empty(kind: Any) -> Any:
    """Return what stands where a field without a default says nothing that fits."""
    origin, inside = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        found: Any = fit_json(kind, {})[0]  # type: ignore[arg-type]  # no object: a type
        return found
    if origin is Literal:
        return inside[-1]  # the word that says least stands last
    if origin in (Union, UnionType) or kind is object:
        return 0 if UnknownRank in inside and NoneType not in inside else None
    return (origin or kind)() if origin is not Mapping else {}
