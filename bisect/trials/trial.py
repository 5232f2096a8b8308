"""One trial: one launch under one setting, asked one question."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..bisection.applying import Applied
from ..bisection.hang_place import place_of
from ..bisection.trial_result import in_words, result_of
from ..facts import HangPlace, Setting, Trial
from .launched import Launch, run
from .run_files import read_evidence, seconds_at

KNOWN_HANG = "known-hang.json"
# Steps without an end of their own: past them is the end of the run.
_LAST = ("steady", "teardown")


@dataclass(frozen=True)
class Question:
    """Which hang a trial asks about."""

    place: HangPlace | None = None  # None: any hang
    still: float | None = None  # seconds that its stacks must stand still to be called it; None:
    # as long as any other hang's


def try_setting(
    number: int,
    applied: Applied,
    setting: Setting,
    question: Question,
    folder: Path,
    *,
    limit: float | None = None,
    watch: Mapping[str, str] | None = None,
    start_in: Path | None = None,
    stopping: threading.Event | None = None,
) -> Trial:
    """Launch `applied` with its run folder in `folder`, and return what came of it.

    The launch ends early: once every rank is past the place in question, and once the known hang
    is seen. `watch` are further options of the watch ({"stall": "10"}); `limit` is in seconds.
    Raises OSError if there is no place for its run folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    launch = Launch(
        command=applied.command,
        run_dir=folder,
        environment=applied.environment,
        watch={"on-hang": "end", **(watch or {}), **_early_ends(question, folder)},
        limit=limit,
        folder=start_in,
    )
    ended = run(launch, stopping)
    verdict = ended.verdict
    hung = place_of(verdict, read_evidence(folder)) if _hangs(verdict) and verdict else None
    known = question.place
    return Trial(
        number=number,
        setting=dict(setting),
        result=result_of(verdict, hung, known),
        outcome=verdict["outcome"] if verdict else None,
        seconds=round(ended.seconds, 3),
        command=applied.command,
        environment=dict(applied.environment),
        run_dir=str(folder),
        why=in_words(verdict, ended.trouble),
        place=hung,
        at_place=seconds_at(folder, known) if known else None,
    )


def _early_ends(question: Question, folder: Path) -> dict[str, str]:
    """Return the options by which a trial ends as soon as its question is answered."""
    place = question.place
    if place is None or place.checkpoint in (None, "launcher"):
        return {}
    name = place.phase or place.checkpoint
    ends = {"past": str(name)} if name not in _LAST else {}
    if question.still is not None and place.stacks:
        file = folder / KNOWN_HANG
        file.write_text(
            json.dumps(
                {
                    "checkpoint": place.checkpoint,
                    "phase": place.phase,
                    "stacks": place.stacks,
                    "still": question.still,
                },
                indent=1,
            )
        )
        ends["known-hang"] = str(file.resolve())
    return ends


def _hangs(verdict: Mapping[str, Any] | None) -> bool:
    return verdict is not None and verdict["outcome"] == "hang"
