"""Plain JSON brought into the shape that it should have, for it may say anything; and the shapes of
verdict.json (docs/reference/verdict.md), isolation.json and matrix.json.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, get_args

from ...base.facts import Rung, WaitKind
from ...base.identity import read_rank
from ...base.outcomes import BADNESS

LONGEST_TEXT = 16_384  # characters of a text in a verdict
LARGEST_NUMBER = 1 << 40  # of whole numbers: pids, ranks, bytes
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # of an escape, which need not have its other half
_CUT = " ... (cut)"


@dataclass(frozen=True)
class Optional:
    """Null, or of this shape."""

    shape: Any


@dataclass(frozen=True)
class OneOf:
    """One of these texts; what is none of them becomes the first."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class ByName:
    """An object with any names, whose values have one shape."""

    shape: Any


class _Rank:
    """A rank, as `write_rank` has it; it becomes the rank itself."""


RANK = _Rank()


def decode_json(data: bytes) -> Any:
    """Return what JSON in UTF-8 says, without numbers that are none and halves of characters.

    Raises ValueError if it is no JSON, or nested too deep.
    """
    text = data.decode("utf-8", "replace")
    try:
        found = json.loads(text, parse_constant=lambda _: None, parse_float=_finite)
        return _replace_surrogates(found) if _SURROGATE.search(text) else found
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def fit_shape(shape: Any, value: Any, path: str, wrong: list[str]) -> Any:
    """Return `value` in this shape: a type, `[shape]`, `{name: shape}`, or one of those above.

    What does not fit is left out, or empty where it must be there, and its path is put in `wrong`.
    """
    fits, found = _fit(shape, value, path, wrong)
    if not fits:
        wrong.append(path)
    return found


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_replace_surrogates(one) for one in value]
    if isinstance(value, dict):
        return {_replace_surrogates(name): _replace_surrogates(one) for name, one in value.items()}
    return value


def _fit(shape: Any, value: Any, path: str, wrong: list[str]) -> tuple[bool, Any]:
    """Return whether `value` fits, and what is made of it."""
    if isinstance(shape, Optional):
        return (True, None) if value is None else _or_null(shape, value, path, wrong)
    if shape is RANK:
        rank = read_rank(value)
        return rank is not None, 0 if rank is None else rank
    if isinstance(shape, OneOf):
        fits = isinstance(value, str) and value in shape.words
        return fits, value if fits else shape.words[0]
    if isinstance(shape, ByName):
        return _mapping(shape.shape, value, path, wrong)
    if isinstance(shape, list):
        return _list(shape[0], value, path, wrong)
    if isinstance(shape, dict):
        found = value if isinstance(value, dict) else {}
        made = {
            n: fit_shape(s, found[n], f"{path}{n}.", wrong) if n in found else _empty(s)
            for n, s in shape.items()
        }
        return isinstance(value, dict), made
    return _plain(shape, value, path, wrong)


def _or_null(shape: Optional, value: Any, path: str, wrong: list[str]) -> tuple[bool, Any]:
    fits, found = _fit(shape.shape, value, path, wrong)
    return fits, found if fits else None


def _list(shape: Any, value: Any, path: str, wrong: list[str]) -> tuple[bool, Any]:
    if not isinstance(value, list):
        return False, []
    found = []
    for number, one in enumerate(value):
        fits, made = _fit(shape, one, f"{path}{number}.", wrong)
        if fits:
            found.append(made)
        else:
            wrong.append(f"{path}{number}.")
    return True, found


def _mapping(shape: Any, value: Any, path: str, wrong: list[str]) -> tuple[bool, Any]:
    if not isinstance(value, dict):
        return False, {}
    found = {}
    for name, one in value.items():
        fits, made = _fit(shape, one, f"{path}{name[:80]}.", wrong)
        if fits:
            found[name[:LONGEST_TEXT]] = made
        else:
            wrong.append(f"{path}{name[:80]}.")
    return True, found


def _plain(shape: Any, value: Any, path: str, wrong: list[str]) -> tuple[bool, Any]:
    if shape is str:
        if isinstance(value, str) and len(value) > LONGEST_TEXT:
            wrong.append(path)
            return True, value[:LONGEST_TEXT] + _CUT
        return isinstance(value, str), value if isinstance(value, str) else ""
    if shape is bool:
        return isinstance(value, bool), value is True
    fits = type(value) in ((int,) if shape is int else (int, float)) and abs(value) < LARGEST_NUMBER
    return fits, shape(value) if fits else shape(0)


def _empty(shape: Any) -> Any:
    if isinstance(shape, Optional):
        return None
    return _fit(shape, None, "", [])[1]


_RANKS = [RANK]
_KIND = OneOf(("unknown", *get_args(WaitKind)))
VERDICT_SHAPE: dict[str, Any] = {
    "schema": int,
    "outcome": OneOf(("hang", *(word for word in BADNESS if word != "hang"))),
    "pipeline": str,
    "command": [str],
    "attempt": int,
    "world_size": int,
    "seen_ranks": _RANKS,
    "checkpoint": Optional(
        {"number": Optional(int), "name": str, "title": str, "phase": Optional(str)}
    ),
    "ranks": dict.fromkeys(("culprit", "stuck", "waiting", "dead", "never_started"), _RANKS),
    "where": [
        {
            "rank": RANK,
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


def fit_verdict(data: Any, missing: list[str]) -> dict[str, Any]:
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
    found: dict[str, Any] = fit_shape(VERDICT_SHAPE, data, "", wrong)
    if wrong:
        named = ", ".join(path.rstrip(".") for path in wrong[:5])
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        missing.append(f"verdict.json: of another kind than schema 1 has it, or cut: {named}{more}")
    return found


TRIALS_FOLDER = "trials"  # the folder of an isolation's starts
FAILED_RESULTS = ("hang", "crash", "slow", "other", "killed")  # results of starts
MOST_REPORTED = 40  # starts of one isolation or matrix that have reports of their own
_ISOLATION = {
    "trials": [
        {
            "number": int,
            "setting": ByName(str),
            "result": str,
            "seconds": float,
            "run_dir": str,
            "why": str,
        }
    ]
}
_MATRIX = {
    "cells": [
        {
            "number": int,
            "name": str,
            "setting": ByName(str),
            "result": Optional(str),
            "seconds": Optional(float),
            "run_dir": Optional(str),
            "where": Optional(str),
        }
    ]
}
ANSWER_FILES = {"isolation": "isolation.json", "matrix": "matrix.json"}


@dataclass(frozen=True)
class RecordedTrial:
    """One start."""

    number: int
    name: str  # of a cell; of a trial its setting in words
    settings: Mapping[str, str]  # values by toggle
    result: str  # "pass", "hang", "other"; of a cell "ok", "hang", ...; "" if it was not run
    where: str  # where it hung, or how it ended otherwise
    seconds: float | None
    link: str  # its run folder, relative to the folder of all; "" if it does not lie in there


def fit_trials(kind: str, data: Mapping[str, Any], missing: list[str]) -> tuple[RecordedTrial, ...]:
    """Return the trials in what isolation.json or matrix.json holds. What is of another kind than
    it should be is left out, and told in `missing`.
    """
    wrong: list[str] = []
    shape = _ISOLATION if kind == "isolation" else _MATRIX
    rows = next(iter(fit_shape(shape, data, "", wrong).values()))
    if wrong:
        missing.append(f"{ANSWER_FILES[kind]}: {len(wrong)} values are of another kind, or cut")
    return tuple(_trial(row) for row in rows)


def _trial(row: Mapping[str, Any]) -> RecordedTrial:
    settings = row["setting"]
    words = " ".join(f"{name}={value}" for name, value in settings.items())
    return RecordedTrial(
        number=row["number"],
        name=row.get("name") or words or "as you run it",
        settings=settings,
        result=row["result"] or "",
        where=row.get("why") or row.get("where") or "",
        seconds=row["seconds"],
        link=_link(row["run_dir"] or ""),
    )


def _link(run_dir: str) -> str:
    """Return where a trial's folder lies in the folder of all, which may have been moved since:
    03-one-worker of a matrix, trials/03 of an isolation.
    """
    path = PurePosixPath(run_dir)
    if path.name in ("", ".", "..") or "\0" in path.name:
        return ""
    return f"{TRIALS_FOLDER}/{path.name}" if path.parent.name == TRIALS_FOLDER else path.name


def trials_with_reports(trials: Sequence[RecordedTrial]) -> list[RecordedTrial]:
    """Return the starts that have reports of their own: those that went wrong, the first
    MOST_REPORTED of them.
    """
    wrong = [trial for trial in trials if trial.link and trial.result in FAILED_RESULTS]
    return wrong[:MOST_REPORTED]
