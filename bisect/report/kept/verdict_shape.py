"""What verdict.json holds, as a shape: docs/reference/verdict.md."""

from __future__ import annotations

from typing import Any, get_args

from ...facts import Rung, WaitKind
from ...monitor.heard import BADNESS
from .shape import ByName, OneOf, Optional, fitted

_RANKS = [int]
_KIND = OneOf(("unknown", *get_args(WaitKind)))
SHAPE: dict[str, Any] = {
    "schema": int,
    "outcome": OneOf(("hang", *(word for word in BADNESS if word != "hang"))),
    "pipeline": str,
    "command": [str],
    "attempt": int,
    "world_size": int,
    "checkpoint": Optional(
        {"number": Optional(int), "name": str, "title": str, "phase": Optional(str)}
    ),
    "ranks": dict.fromkeys(("culprit", "stuck", "waiting", "dead", "never_started"), _RANKS),
    "where": [
        {
            "rank": int,
            "host": str,
            "pid": Optional(int),
            "gpu": Optional(int),
            "last_line": str,
            "last_line_age": Optional(float),
        }
    ],
    "component": Optional(str),
    "call": Optional(str),
    "frame": Optional(str),
    "waits_for": Optional(
        {
            "kind": _KIND,
            "detail": str,
            "pid": Optional(int),
            "process": Optional(str),
        }
    ),
    "cause": Optional(
        {
            "id": str,
            "title": str,
            "why": str,
            "confidence": float,
            "matched": [str],
            "avoid": [str],
        }
    ),
    "candidates": [{"ranks": _RANKS, "component": Optional(str), "score": float}],
    "chain": [{"source": str, "target": str, "kind": _KIND, "evidence": str}],
    "try": [{"toggle": str, "value": str, "command": str}],
    "seen_by": OneOf(("proc", *get_args(Rung))),
    "slow_steps": [
        {
            "checkpoint": Optional(int),
            "name": str,
            "phase": Optional(str),
            "ranks": _RANKS,
            "seconds": float,
            "deadline": float,
            "moved": str,
        }
    ],
    "barrier_opened": Optional(str),
    "seconds": {
        "total": float,
        "still": Optional(float),
        "past_deadline": Optional(float),
        "to_verdict": Optional(float),
    },
    "versions": ByName(str),
    "notes": [str],
}


def verdict_of(data: Any, missing: list[str]) -> dict[str, Any]:
    """Return the verdict of schema 1 that `data` is, every field of its type; {} if it is none.

    What is wrong with it is put in `missing`, as a sentence.
    """
    if not isinstance(data, dict):
        missing.append("verdict.json is no verdict: it holds no object")
        return {}
    if data.get("schema") != 1:
        missing.append(f"verdict.json has schema {data.get('schema')!r:.40}, and 1 can be read")
        return {}
    if data.get("outcome") not in BADNESS:
        missing.append(f"verdict.json is no verdict: its outcome is {data.get('outcome')!r:.40}")
        return {}
    wrong: list[str] = []
    found: dict[str, Any] = fitted(SHAPE, data, "", wrong)
    if wrong:
        named = ", ".join(path.rstrip(".") for path in wrong[:5])
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        missing.append(f"verdict.json: of another kind than schema 1 has it, or cut: {named}{more}")
    return found
