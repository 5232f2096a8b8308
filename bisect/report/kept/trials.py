"""The starts of an isolation, or the cells of a matrix, as rows with a link to each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from .shape import ByName, Optional, fitted

STARTS = "trials"  # the folder of an isolation's starts
WENT_WRONG = ("hang", "crash", "slow", "other", "killed")  # results of starts
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
KINDS = {"isolation": "isolation.json", "matrix": "matrix.json"}


@dataclass(frozen=True)
class Trial:
    """One start."""

    number: int
    name: str  # of a cell; of a trial its setting in words
    settings: Mapping[str, str]  # values by toggle
    result: str  # "pass", "hang", "other"; of a cell "ok", "hang", ...; "" if it was not run
    where: str  # where it hung, or how it ended otherwise
    seconds: float | None
    link: str  # its run folder, relative to the folder of all; "" if it does not lie in there


def trials_of(kind: str, data: Mapping[str, Any], missing: list[str]) -> tuple[Trial, ...]:
    """Return the trials in what isolation.json or matrix.json holds. What is of another kind than
    it should be is left out, and told in `missing`.
    """
    wrong: list[str] = []
    shape = _ISOLATION if kind == "isolation" else _MATRIX
    rows = next(iter(fitted(shape, data, "", wrong).values()))
    if wrong:
        missing.append(f"{KINDS[kind]}: {len(wrong)} values are of another kind, or cut")
    return tuple(_trial(row) for row in rows)


def _trial(row: Mapping[str, Any]) -> Trial:
    settings = row["setting"]
    words = " ".join(f"{name}={value}" for name, value in settings.items())
    return Trial(
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
    return f"{STARTS}/{path.name}" if path.parent.name == STARTS else path.name


def with_reports(trials: Sequence[Trial]) -> list[Trial]:
    """Return the starts that have reports of their own: those that went wrong, the first
    MOST_REPORTED of them.
    """
    wrong = [trial for trial in trials if trial.link and trial.result in WENT_WRONG]
    return wrong[:MOST_REPORTED]
