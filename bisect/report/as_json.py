"""Verdicts as JSON objects, schema 1 (data/verdict.schema.json), and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar

from ..facts import (
    Candidate,
    Cause,
    Edge,
    Place,
    Ranks,
    Seconds,
    SlowStep,
    Try,
    Verdict,
    Wait,
    Where,
)

# The order in which a person reads it.
_ORDER = (
    *("schema", "outcome", "pipeline", "command", "attempt", "world_size", "checkpoint", "ranks"),
    *("where", "component", "call", "frame", "waits_for", "cause", "candidates", "chain", "try"),
    *("seen_by", "slow_steps", "barrier_opened", "seconds", "versions", "notes"),
)
# Known inside, but not part of schema 1: which rank and object are meant stands in the detail.
_INSIDE = ("rank", "what")

_T = TypeVar("_T")


def as_json(verdict: Verdict) -> dict[str, Any]:
    """Return `verdict` as the object that verdict.json holds."""
    plain = asdict(verdict)
    plain["try"] = plain.pop("try_")
    if plain["waits_for"] is not None:
        plain["waits_for"] = {k: v for k, v in plain["waits_for"].items() if k not in _INSIDE}
    ordered: dict[str, Any] = _lists({name: plain[name] for name in _ORDER})
    return ordered


def _lists(value: Any) -> Any:
    """Return `value` with tuples as lists, as JSON would read them back."""
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_lists(item) for item in value]
    return value


def from_json(data: Mapping[str, Any]) -> Verdict:
    """Return the verdict that `data` (as of `as_json`) holds; an older file may lack `chain`,
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
        checkpoint=_optional(Place, data["checkpoint"]),
        ranks=_made(Ranks, data["ranks"]),
        where=tuple(_made(Where, one) for one in data["where"]),
        component=data["component"],
        call=data["call"],
        frame=data["frame"],
        waits_for=_optional(Wait, data["waits_for"]),
        cause=_optional(Cause, data["cause"]),
        candidates=tuple(_made(Candidate, one) for one in data["candidates"]),
        chain=tuple(_made(Edge, one) for one in data.get("chain", ())),
        try_=tuple(_made(Try, one) for one in data["try"]),
        seen_by=data["seen_by"],
        slow_steps=tuple(_made(SlowStep, one) for one in data["slow_steps"]),
        barrier_opened=data["barrier_opened"],
        seconds=_made(Seconds, data["seconds"]),
        versions=dict(data["versions"]),
        notes=tuple(data.get("notes", ())),
    )


def _made(kind: type[_T], data: Mapping[str, Any]) -> _T:
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # facts, all of them
    unknown = set(data) - names
    if unknown:
        raise ValueError(f"a {kind.__name__} has no {', '.join(sorted(unknown))}")
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in data.items()})


def _optional(kind: type[_T], data: Mapping[str, Any] | None) -> _T | None:
    return None if data is None else _made(kind, data)
