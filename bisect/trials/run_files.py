"""What a run folder tells: its verdict, its evidence, and how long ranks spent where."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..facts import HangPlace

_BADNESS = ("ok", "interrupted", "slow", "crash", "hang")


def read_verdict(run_dir: Path) -> dict[str, Any] | None:
    """Return the verdict of a run: of several (a node each, an attempt each) the worst of the last
    attempt. None where there is none that can be read.
    """
    found = [verdict for folder in _folders(run_dir) if (verdict := _read(folder, "verdict.json"))]
    if not found:
        return None
    last = max(verdict["attempt"] for verdict in found)
    of_last = [verdict for verdict in found if verdict["attempt"] == last]
    return max(of_last, key=lambda verdict: _BADNESS.index(verdict["outcome"]))


def read_evidence(run_dir: Path) -> dict[str, Any]:
    """Return evidence.json of a run, {} where there is none."""
    return next((e for folder in _folders(run_dir) if (e := _read(folder, "evidence.json"))), {})


def seconds_at(run_dir: Path, place: HangPlace) -> float | None:
    """Return how long the slowest rank spent in a step and phase; None if none came through it."""
    longest: float | None = None
    for folder in _folders(run_dir):
        for seconds in _stays(folder, place):
            longest = max(longest or 0.0, seconds)
    return longest


def _stays(folder: Path, place: HangPlace) -> Iterator[float]:
    """Yield for each rank how long it was in the step or phase."""
    events = list(_events(folder))
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
