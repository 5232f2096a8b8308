"""What a run folder tells: its verdict, its evidence, and how long ranks spent where."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..facts import HangPlace
from ..monitor.heard import BADNESS


def read_verdict(run_dir: Path) -> dict[str, Any] | None:
    """Return the verdict of a run: of several (a node each, an attempt each) the worst of the last
    attempt. None where there is none that can be read.
    """
    found = [verdict for folder in _folders(run_dir) if (verdict := _read(folder, "verdict.json"))]
    if not found:
        return None
    last = max(verdict["attempt"] for verdict in found)
    of_last = [verdict for verdict in found if verdict["attempt"] == last]
    return max(of_last, key=lambda verdict: BADNESS.index(verdict["outcome"]))


def read_evidence(run_dir: Path) -> dict[str, Any]:
    """Return evidence.json of a run, {} where there is none."""
    return next((e for folder in _folders(run_dir) if (e := _read(folder, "evidence.json"))), {})


def told_of_toggles(run_dir: Path) -> tuple[list[str], bool]:
    """Return what ranks told of the toggles that a script of the user's own came to, and whether
    any rank said anything at all.
    """
    events = [event for folder in _folders(run_dir) for event in _events(folder)]
    told = [str(event["name"]) for event in events if event.get("t") == "toggle"]
    return told, any(event.get("t") == "hello" for event in events)


def seconds_at(run_dir: Path, place: HangPlace) -> float | None:
    """Return how long the slowest rank spent in a step and phase; None if none came through it."""
    longest: float | None = None
    for folder in _folders(run_dir):
        events = list(_events(folder))
        for seconds in (*_stays(events, place), *_own_stays(events, place)):
            longest = max(longest or 0.0, seconds)
    return longest


def _stays(events: Sequence[Mapping[str, Any]], place: HangPlace) -> Iterator[float]:
    """Yield for each rank how long it was in the step or phase of a pipeline."""
    tables = [event["numbers"] for event in events if event.get("t") == "table"]
    number = tables[0].get(place.checkpoint or "") if tables else None
    since: dict[int, float] = {}
    for event in events:
        rank, kind, at = event.get("rank"), event.get("t"), float(event.get("at", 0.0))
        if rank is None or kind not in ("enter", "phase", "reached"):
            continue
        if rank in since:
            yield at - since.pop(rank)
        inside = event.get("n") == number and kind != "reached"
        if inside and (event.get("name") if kind == "phase" else None) == place.phase:
            since[rank] = at


def _own_stays(events: Sequence[Mapping[str, Any]], place: HangPlace) -> Iterator[float]:
    """Yield how long a rank was in the step of a script of the user's own, each time it was."""
    since: dict[tuple[object, ...], float] = {}
    for event in events:
        key = event.get("rank"), event.get("step"), event.get("k")
        name = event.get("checkpoint") or event.get("step")
        is_it = (name, event.get("phase")) == (place.checkpoint, place.phase)
        if event.get("t") == "begin" and is_it:
            since[key] = float(event["at"])
        elif event.get("t") == "end" and key in since:
            yield float(event["at"]) - since.pop(key)


def _events(folder: Path) -> Iterator[Mapping[str, Any]]:
    with suppress(OSError), open(folder / "events.jsonl", encoding="utf-8") as lines:
        for line in lines:
            with suppress(ValueError):
                yield json.loads(line)


def _folders(run_dir: Path) -> list[Path]:
    below = [path for path in run_dir.glob("*-*") if path.is_dir()] if run_dir.is_dir() else []
    return [run_dir, *sorted(p for p in below if p.name.startswith(("attempt-", "node-")))]


def _read(folder: Path, name: str) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        found: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
        return found
    return None
