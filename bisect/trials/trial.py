"""One trial: one launch under one setting, asked one question."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..bisection.applying import Applied, is_ours
from ..bisection.hang_place import crash_place_of, place_of
from ..bisection.trial_result import in_words, result_of
from ..errors import NO_SUCH_PROGRAM, NOT_ALLOWED, CannotStart, HangbisectError
from ..facts import HangPlace, Setting, Trial
from ..monitor.known_hang import STEADY
from ..monitor.own_steps import SCRIPT_RUNNING
from ..rank.masking import mask_text
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
    crash: bool = False  # a crash is what is asked about, and no hang


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
    Raises CannotStart if the command cannot be started, HangbisectError if there is no place for
    its run folder.
    """
    ours = is_ours(applied.command)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        launch = Launch(
            command=applied.command,
            run_dir=folder,
            environment=applied.environment,
            watch={**_at_first(ours), **(watch or {}), **_early_ends(question, folder, ours)},
            limit=limit,
            folder=start_in,
        )
        ended = run(launch, stopping)
    except OSError as error:
        raise HangbisectError(
            f"start {number} cannot be made in {folder}: {error.strerror or error}",
            "Name another folder with --run-dir.",
        ) from None
    verdict = ended.verdict
    if verdict is None and ended.status in (NOT_ALLOWED, NO_SUCH_PROGRAM):
        raise CannotStart(ended.trouble, ended.status)
    hung = _place(verdict, question, folder)
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
        why=mask_text(in_words(verdict, ended.trouble)),
        place=hung,
        at_place=seconds_at(folder, known) if known else None,
    )


def _at_first(ours: bool) -> dict[str, str]:
    """Return the options of a start of which it is not known where it may hang: a script of the
    user's own has shown that it does not once it trains (with --keep-watching: at its end).
    """
    return {"on-hang": "end"} if ours else {"on-hang": "end", "past": STEADY}


def _past(place: HangPlace, ours: bool) -> str:
    """Return what a start need not go beyond, "" if it has to come to its end.

    A script of the user's own that hangs before it told of any step, or between two, has shown what
    it was asked once it trains.
    """
    name = place.phase or place.checkpoint
    if ours:
        return "" if name in (None, "launcher", *_LAST) else str(name)
    return STEADY if name in (None, "launcher", SCRIPT_RUNNING) else str(name)


def _early_ends(question: Question, folder: Path, ours: bool) -> dict[str, str]:
    """Return the options by which a trial ends as soon as its question is answered."""
    place = question.place
    if place is None:
        return {}
    ends = {"past": past} if (past := _past(place, ours)) else {}
    if place.checkpoint in (None, "launcher"):
        return ends
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


def _place(verdict: Mapping[str, Any] | None, asked: Question, folder: Path) -> HangPlace | None:
    """Return where it hung, or crashed if that is asked about; None if it did neither."""
    if verdict is None or verdict["outcome"] != ("crash" if asked.crash else "hang"):
        return None
    return (crash_place_of if asked.crash else place_of)(verdict, read_evidence(folder))
