"""Run folders for tests: written file by file, as a run writes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

EPOCH = 1_795_000_000.0  # what the time of day is when the monotonic clock says 0

VERDICT: dict[str, Any] = {
    "schema": 2,
    "outcome": "hang",
    "pipeline": "startup",
    "command": ["torchrun", "--nproc_per_node=2", "train.py"],
    "attempt": 0,
    "world_size": 2,
    "seen_ranks": [0, 1],
    "checkpoint": {
        "number": 9,
        "name": "wandb_logger",
        "title": "WandbLogger ready",
        "phase": None,
    },
    "ranks": {
        "culprit": [1],
        "stuck": [1],
        "waiting": [0],
        "dead": [],
        "never_started": [],
    },
    "where": [
        {
            "rank": 1,
            "host": "n03",
            "pid": 4711,
            "gpu": None,
            "last_line": "About to call wandb.init",
            "last_line_age": 60.2,
            "call": None,
            "waits_for": None,
            "role": "",
            "ended": "",
        }
    ],
    "component": "wandb",
    "call": "wandb.init",
    "frame": "Condition.wait (threading.py:327)",
    "waits_for": {"kind": "socket", "detail": "10.0.0.1:443", "pid": None, "process": None},
    "cause": {
        "id": "service-silent",
        "title": "the service accepts and never answers",
        "why": "It does.",
        "level": "fits",
        "matched": ["a silent socket"],
        "avoid": ["WANDB_MODE=offline"],
    },
    "candidates": [{"ranks": [1], "component": "wandb", "level": "fits"}],
    "chain": [],
    "try": [{"toggle": "wandb", "value": "offline", "command": "WANDB_MODE=offline torchrun"}],
    "seen_by": "py-spy",
    "slow_steps": [],
    "barrier_opened": None,
    "seconds": {"total": 31.2, "still": 8.0, "past_deadline": None, "to_verdict": 1.1},
    "versions": {"hangbisect": "0.1.0", "python": "3.11.7"},
    "notes": [],
    "said": [],
    "limit": "",
    "guessed": False,
    "trained": None,
    "nodes": [],
    "partial": False,
    "differences": [],
}


def event(at: float, kind: str, rank: int | None = None, **fields: Any) -> dict[str, Any]:
    """Return an event as the monitor of a node notes it."""
    own = {} if rank is None else {"rank": rank}
    return {"wall": EPOCH + at, "at": at, "t": kind, **fields, **own}


def hello(at: float, rank: int, **fields: Any) -> dict[str, Any]:
    place = {"local_rank": rank, "world_size": 2, "node": 0, "host": "n03", "pid": 4710 + rank}
    return event(at, "hello", rank, **{**place, "began": at, "python": "3.11.7", **fields})


def write_run(
    folder: Path,
    verdict: Any = VERDICT,
    events: Iterable[Mapping[str, Any]] = (),
    **files: Any,
) -> Path:
    """Write a run folder; `files` by their names without an ending, as JSON."""
    (folder / "stacks").mkdir(parents=True, exist_ok=True)
    if verdict is not None:
        (folder / "verdict.json").write_text(json.dumps(verdict))
    if events:
        lines = "".join(json.dumps(one) + "\n" for one in events)
        (folder / "events.jsonl").write_text(lines)
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder
