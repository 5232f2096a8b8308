"""Verdicts and evidence as JSON objects, and facts of any type read back from JSON.

A verdict is schema 1 (data/verdict.schema.json). `reader_for` is fast enough for the looks at a
thousand ranks: it works out once what a type needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ..base.facts import (
    Candidate,
    Cause,
    Edge,
    MachineFacts,
    Place,
    RankFacts,
    Ranks,
    Seconds,
    SlowStep,
    Try,
    Verdict,
    Wait,
    Where,
)
from ..base.identity import RankId, UnknownRank, read_rank, write_rank

if TYPE_CHECKING:
    from ..diagnosis.wait_graph import Node, WaitGraph


# The order in which a person reads it.
_ORDER = (
    *("schema", "outcome", "pipeline", "command", "attempt", "world_size", "seen_ranks"),
    *("checkpoint", "ranks"),
    *("where", "component", "call", "frame", "waits_for", "cause", "candidates", "chain", "try"),
    *("seen_by", "slow_steps", "barrier_opened", "seconds", "versions", "notes"),
)
# Known inside, but not part of schema 1: which rank and object are meant stands in the detail.
_INSIDE = ("rank", "what", "host")

_T = TypeVar("_T")


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """Return `verdict` as the object that verdict.json holds."""
    plain = plain_fact(verdict)
    plain["try"] = plain.pop("try_")
    if plain["waits_for"] is not None:
        plain["waits_for"] = {k: v for k, v in plain["waits_for"].items() if k not in _INSIDE}
    return {name: plain[name] for name in _ORDER}


def plain_fact(value: Any) -> Any:
    """Return a fact as JSON has it, and would read it back: a rank as of `write_rank`."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, UnknownRank):
        return write_rank(value)
    if isinstance(value, tuple | list):
        return [plain_fact(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain_fact(item) for key, item in value.items()}
    return {one.name: plain_fact(getattr(value, one.name)) for one in fields(value)}


_PLAIN = (str, int, float, NoneType)


def verdict_from_json(data: Mapping[str, Any]) -> Verdict:
    """Return the verdict that `data` (as of `verdict_json`) holds; an older file may lack `chain`,
    `notes` and what avoids a cause.

    Raises KeyError, TypeError or ValueError if it is no verdict of schema 1.
    """
    if data["schema"] != 1:
        raise ValueError(f"schema {data['schema']!r} of a verdict is not known; 1 is")
    return Verdict(
        outcome=data["outcome"],
        pipeline=data["pipeline"],
        command=tuple(data["command"]),
        attempt=data["attempt"],
        world_size=data["world_size"],
        checkpoint=_make_optional_fact(Place, data["checkpoint"]),
        ranks=_make_fact(Ranks, data["ranks"]),
        where=tuple(_make_fact(Where, one) for one in data["where"]),
        component=data["component"],
        call=data["call"],
        frame=data["frame"],
        waits_for=_make_optional_fact(Wait, data["waits_for"]),
        cause=_make_optional_fact(Cause, data["cause"]),
        candidates=tuple(_make_fact(Candidate, one) for one in data["candidates"]),
        chain=tuple(_make_fact(Edge, one) for one in data.get("chain", ())),
        try_=tuple(_make_fact(Try, one) for one in data["try"]),
        seen_by=data["seen_by"],
        slow_steps=tuple(_make_fact(SlowStep, one) for one in data["slow_steps"]),
        barrier_opened=data["barrier_opened"],
        seconds=_make_fact(Seconds, data["seconds"]),
        versions=dict(data["versions"]),
        notes=tuple(data.get("notes", ())),
        seen_ranks=tuple(map(_read_rank, data.get("seen_ranks", ()))),
    )


def _make_fact(kind: type[_T], data: Mapping[str, Any]) -> _T:
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # facts, all of them
    unknown = set(data) - names
    if unknown:
        raise ValueError(f"a {kind.__name__} has no {', '.join(sorted(unknown))}")
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    for name in names & values.keys():
        if kind is Ranks or name == "ranks":
            values[name] = tuple(map(_read_rank, values[name]))
    if kind is Where:
        values["rank"] = _read_rank(values["rank"])
    return kind(**values)


def _read_rank(data: Any) -> RankId:
    if isinstance(data, UnknownRank):
        return data
    found = read_rank(data)
    if found is None:
        raise TypeError(f"{data!r:.100} is no rank")
    return found


def _make_optional_fact(kind: type[_T], data: Mapping[str, Any] | None) -> _T | None:
    return None if data is None else _make_fact(kind, data)


Reader = Callable[[Any], Any]


@cache
def reader_for(kind: Any) -> Reader:
    """Return what makes a value of type `kind` of JSON. What is not there has its default; what
    this version does not know is left out. It raises TypeError or ValueError for what is none.
    """
    origin, inside = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return _of_dataclass(kind)
    if origin in (Union, UnionType):
        first = next(one for one in inside if one is not NoneType)
        reader = _read_rank if UnknownRank in inside else reader_for(first)
        return _or_none(reader) if NoneType in inside else reader
    if origin is Literal:
        return _one_of(frozenset(inside))
    if origin is tuple:
        return _of_tuple(inside)
    if origin is not None and issubclass(origin, Mapping):
        return _by_name(reader_for(inside[1]))
    if kind is object:
        return lambda data: data
    return _number if kind is float else _plain(kind)


def _of_dataclass(kind: Any) -> Reader:
    hints = get_type_hints(kind)
    readers = [(one.name, reader_for(hints[one.name])) for one in fields(kind) if one.init]

    def read(data: Any) -> Any:
        if type(data) is not dict:
            raise TypeError(f"{data!r:.100} is no {kind.__name__}")
        return kind(**{name: read_one(data[name]) for name, read_one in readers if name in data})

    return read


def _of_tuple(inside: tuple[Any, ...]) -> Reader:
    many = inside[-1:] == (Ellipsis,)
    readers = [reader_for(one) for one in inside if one is not Ellipsis]

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


def evidence_json(
    ranks: Sequence[RankFacts], graph: WaitGraph, machine: MachineFacts
) -> dict[str, Any]:
    """Return every look at every process, the whole graph of who waits for what, the machine."""
    return {
        "ranks": plain_fact(ranks),
        "graph": {
            "nodes": [_plain_node(node) for node in graph.nodes.values()],
            "edges": plain_fact(graph.edges),
        },
        "machine": plain_fact(machine),
    }


def _plain_node(node: Node) -> Any:
    return {name: value for name, value in plain_fact(node).items() if name != "process"}
