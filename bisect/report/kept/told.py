"""What a run tells of each of its ranks, by name and rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .fields import text
from .run import KeptRun

ByRank = Mapping[int, str]


def said(run: KeptRun, names: Sequence[str]) -> dict[str, ByRank]:
    """Return fields of the ranks' greetings."""
    found: dict[str, dict[int, str]] = {}
    for part in run.everywhere:
        for event in part.events:
            if event["t"] == "hello" and "rank" in event:
                for name in names:
                    if word := text(event, name):
                        found.setdefault(name, {})[event["rank"]] = word
    return {**found}


def at_the_start(run: KeptRun) -> set[str]:
    """Return the names of the variables that any rank had when it began."""
    names: set[str] = set()
    for part in run.everywhere:
        for event in part.events:
            if event["t"] == "hello" and isinstance(event.get("environment"), dict):
                names |= event["environment"].keys()
    return names


def variables(run: KeptRun) -> dict[str, ByRank]:
    """Return the variables that matter; "" where a rank has none of that name."""
    found: dict[str, dict[int, str]] = {}
    every: list[int] = []
    for part in run.everywhere:
        for rank, own in (part.environment or {}).get("ranks", {}).items():
            every.append(int(rank))
            for name, value in own.items():
                found.setdefault(name, {})[int(rank)] = value
    return {name: {rank: them.get(rank, "") for rank in every} for name, them in found.items()}


def versions(run: KeptRun) -> dict[str, ByRank]:
    """Return the versions of libraries, by the ranks of the node that has them."""
    found: dict[str, dict[int, str]] = {}
    for part in run.everywhere:
        for name, version in (part.environment or {}).get("versions", {}).items():
            found.setdefault(name, {}).update(dict.fromkeys(_ranks_of(part), version))
    found.pop("python", None)  # as the ranks say it
    return {**found}


def machines(run: KeptRun) -> dict[str, ByRank]:
    """Return what is known of the machines, by the ranks that run there."""
    found: dict[str, dict[int, str]] = {}
    for part in run.everywhere:
        for name in ("kernel", "processors"):
            if value := (part.environment or {}).get(name):
                found.setdefault(name, {}).update(dict.fromkeys(_ranks_of(part), str(value)))
    return {**found}


def _ranks_of(part: KeptRun) -> list[int]:
    """Return the ranks of a node; 0 where none is known."""
    return [int(rank) for rank in (part.environment or {}).get("ranks", {})] or [0]
