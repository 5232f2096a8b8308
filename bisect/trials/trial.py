"""One trial: one launch under one setting, asked one question; and the same start again and again
(`hangbisect run --repeat`), for a hang that comes and goes.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..base.errors import NO_SUCH_PROGRAM, NOT_ALLOWED, CannotStart, HangbisectError, UsageError
from ..base.lazy_dataclass import dataclass
from ..base.masking import mask_text
from ..base.pipeline import find_walked_pipeline
from ..base.rank_history import SCRIPT_RUNNING
from ..base.verdict_facts import HangPlace, Setting, Trial, Verdict
from ..base.words import format_count, format_seconds
from ..monitor.child_processes import make_reports_now
from ..monitor.clocks import STEADY
from ..search.cells import DEFAULT_LIMIT
from ..search.trial_results import (
    crash_place_of,
    describe_ending,
    hang_place_of,
    interval,
    judge_trial,
)
from ..toggles.command_toggles import AppliedSetting, walks_pipeline
from ..toggles.table import TOGGLES, showing_races
from .launch import Launch, find_rank_facts, run_launch, seconds_at, stopping_by_signals
from .resources import free_now, wait_until_free

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
    to_end: bool = False  # where no hang is known yet: it may come after the first training steps


def try_setting(
    number: int,
    applied: AppliedSetting,
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
    ours = walks_pipeline(applied.command)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        launch = Launch(
            command=applied.command,
            run_dir=folder,
            environment=applied.environment,
            watch=_choose_options(watch or {}, question, folder, ours),
            limit=limit,
            folder=start_in,
        )
        ended = run_launch(launch, stopping)
    except OSError as error:
        raise HangbisectError(
            f"start {number} cannot be made in {folder}: {error.strerror or error}",
            "Name another folder with --run-dir.",
        ) from None
    verdict = ended.verdict
    if verdict is None and ended.status in (NOT_ALLOWED, NO_SUCH_PROGRAM):
        raise CannotStart(ended.trouble, ended.status)
    hung = _find_hang_place(verdict, question, folder)
    known = question.place
    return Trial(
        number=number,
        setting=dict(setting),
        result=judge_trial(verdict, hung, known),
        outcome=verdict.outcome if verdict else None,
        seconds=round(ended.seconds, 3),
        command=applied.command,
        environment=dict(applied.environment),
        run_dir=str(folder),
        why=mask_text(describe_ending(verdict, ended.trouble)),
        place=hung,
        at_place=seconds_at(folder, known) if known else None,
    )


def _choose_options(
    asked: Mapping[str, str], question: Question, folder: Path, ours: bool
) -> dict[str, str]:
    """Return the options of a start. What is `asked` has the last word, but of where a start ends
    once it is known where it may hang.
    """
    chosen = choose_watch_options(question, folder, ours)
    if question.place is None:
        return {**chosen, **asked}
    return {**chosen, **asked, **{n: chosen[n] for n in ("past", "known-hang") if n in chosen}}


def choose_watch_options(question: Question, folder: Path, ours: bool) -> dict[str, str]:
    """Return the options by which a start ends as soon as its question is answered. Writes the
    file of a known hang into its `folder`.

    Where no hang is known yet, a script of the user's own has shown that it does not hang once it
    trains, or at its end, if that is asked for.
    """
    options, place = {"on-hang": "end"}, question.place
    if past := _past(question, ours):
        options["past"] = past
    if place is None or place.checkpoint in (None, "launcher") or place.trained is not None:
        return options
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
        options["known-hang"] = str(file.resolve())
    return options


def _past(question: Question, ours: bool) -> str:
    """Return what a start need not go beyond, "" if it has to come to its end.

    A script of the user's own that hangs before it told of any step, or between two, has shown what
    it was asked once it trains; one that hung later, once it is past that step.
    """
    place = question.place
    if place is None:
        return "" if ours or question.to_end else STEADY
    name = place.phase or place.checkpoint
    if ours:
        return "" if name in (None, "launcher", *_LAST) else str(name)
    if place.trained is not None:
        return str(place.trained) if place.trained else ""
    return STEADY if name in (None, "launcher", SCRIPT_RUNNING) else str(name)


def _find_hang_place(verdict: Verdict | None, asked: Question, folder: Path) -> HangPlace | None:
    """Return where it hung, or crashed if that is asked about; None if it did neither."""
    if verdict is None or verdict.outcome != ("crash" if asked.crash else "hang"):
        return None
    return (crash_place_of if asked.crash else hang_place_of)(verdict, find_rank_facts(folder))


HUNG, UNJUDGED, INTERRUPTED, CONFIDENCE = 3, 5, 130, 0.95
HOPELESS_STARTS = 3  # starts of which none could be judged: neither will the next be


@dataclass(frozen=True)
class RepeatRequest:
    """What is repeated. `watch` are options of the watch, by name; `limit` is in seconds."""

    command: tuple[str, ...]
    times: int
    until_hang: bool
    folder: Path
    watch: dict[str, str]
    limit: float | None = None  # None: an hour


def repeat_command(asked: RepeatRequest) -> int:
    """Start the command up to so many times; keep the first hang's evidence; say how many of the
    starts hung. Return 3 if one did, 130 if interrupted, 5 if none could be judged, else 0. Raises
    UsageError, and CannotStart for a program that there is not.
    """
    if (on_hang := asked.watch.get("on-hang", "end")) != "end":
        raise UsageError(
            f"--repeat ends each start that hangs, and --on-hang {on_hang} does not",
            "Leave out one of them.",
        )
    trials: list[Trial] = []
    kept: Trial | None = None
    with stopping_by_signals() as stopping:
        before = free_now()
        while len(trials) < asked.times and not stopping.is_set():
            number = len(trials) + 1
            folder = asked.folder / f"start-{number}"
            trial = try_setting(
                number,
                AppliedSetting(asked.command, {}),
                {},
                Question(),
                folder,
                limit=asked.limit or DEFAULT_LIMIT,
                watch=_watch_options(asked),
                stopping=stopping,
            )
            if stopping.is_set():
                break
            trials.append(trial)
            _print_start(trial, asked.times)
            if trial.result == "hang" and kept is None:
                kept = trial
            elif trial.result != "other":
                shutil.rmtree(folder, ignore_errors=True)
            if (kept is not None and asked.until_hang) or is_hopeless(trials):
                break
            if taken := wait_until_free(before, asked.command, os.environ, stopping):
                print(f"going on although {taken}", file=sys.stderr)
        print("\n".join(summarize_starts(trials, kept, interrupted=stopping.is_set())))
        if stopping.is_set():
            return INTERRUPTED
    if kept is not None:
        sys.stdout.flush()
        make_reports_now(kept.run_dir)
        return HUNG
    return 0 if any(trial.result == "pass" for trial in trials) else UNJUDGED


def is_hopeless(trials: Sequence[Trial]) -> bool:
    """Return whether no start so far could be judged, and further ones are not worth their time."""
    return len(trials) >= HOPELESS_STARTS and all(trial.result == "other" for trial in trials)


def summarize_starts(
    trials: Sequence[Trial], kept: Trial | None, interrupted: bool = False
) -> list[str]:
    """Return how many starts hung, with an interval, and where the first hang's evidence is."""
    judged = [trial for trial in trials if trial.result != "other"]
    hangs = sum(trial.result == "hang" for trial in judged)
    if not judged:
        lines = [f"no start could be judged, of {len(trials)}"]
    else:
        low, high = interval(hangs, len(judged), CONFIDENCE)
        share = f"{hangs / len(judged):.0%}, by {CONFIDENCE:.0%} confidence {low:.1%} to {high:.0%}"
        lines = [f"{format_count(hangs, 'hang')} in {format_count(len(judged), 'start')} ({share})"]
    others = len(trials) - len(judged)
    if others:
        lines.append(f"{format_count(others, 'more start')} neither hung nor went well")
    if kept is not None:
        lines += [f"first hang: start {kept.number}, {kept.why}", f"report: {kept.run_dir}"]
    return [f"interrupted: {lines[0]}", *lines[1:]] if interrupted else lines


def _watch_options(asked: RepeatRequest) -> dict[str, str]:
    """Return the options of the watch: our pipelines end after their first steps, as a script of
    the user's own does anyway, and without barriers, which may hide a race.
    """
    if not walks_pipeline(asked.command):
        return asked.watch
    past = find_walked_pipeline(asked.command).shows_itself
    return {"past": past, **showing_races(TOGGLES), **asked.watch}


def _print_start(trial: Trial, times: int) -> None:
    clock = time.strftime("%H:%M:%S")
    print(
        f"[{clock}] start {trial.number} of {times}: {trial.why}, {format_seconds(trial.seconds)}",
        file=sys.stderr,
    )
