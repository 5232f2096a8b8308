"""The same start again and again, for a hang that comes and goes: `hangbisect run --repeat`."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..bisection.applying import Applied, is_ours
from ..bisection.cells import DEFAULT_LIMIT
from ..bisection.confidence import interval
from ..bisection.toggles import TOGGLES, showing_races
from ..errors import UsageError
from ..facts import Trial
from ..monitor.reports import make_now
from ..pipelines import walked_by
from ..report.words import counted, seconds
from .between import free_now, wait_until_free
from .stopping import stopping_by_signals
from .trial import Question, try_setting

HUNG, UNJUDGED, INTERRUPTED, CONFIDENCE = 3, 5, 130, 0.95
ENOUGH = 3  # starts of which none could be judged: neither will the next be


@dataclass(frozen=True)
class Repeat:
    """What is repeated. `watch` are options of the watch, by name; `limit` is in seconds."""

    command: tuple[str, ...]
    times: int
    until_hang: bool
    folder: Path
    watch: dict[str, str]
    limit: float | None = None  # None: an hour


def repeat(asked: Repeat) -> int:
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
                Applied(asked.command, {}),
                {},
                Question(),
                folder,
                limit=asked.limit or DEFAULT_LIMIT,
                watch=_watch(asked),
                stopping=stopping,
            )
            if stopping.is_set():
                break
            trials.append(trial)
            _tell(trial, asked.times)
            if trial.result == "hang" and kept is None:
                kept = trial
            elif trial.result != "other":
                shutil.rmtree(folder, ignore_errors=True)
            if (kept is not None and asked.until_hang) or is_hopeless(trials):
                break
            if taken := wait_until_free(before, asked.command, os.environ, stopping):
                print(f"going on although {taken}", file=sys.stderr)
        print("\n".join(summed_up(trials, kept, interrupted=stopping.is_set())))
        if stopping.is_set():
            return INTERRUPTED
    if kept is not None:
        sys.stdout.flush()
        make_now(kept.run_dir)
        return HUNG
    return 0 if any(trial.result == "pass" for trial in trials) else UNJUDGED


def is_hopeless(trials: Sequence[Trial]) -> bool:
    """Return whether no start so far could be judged, and further ones are not worth their time."""
    return len(trials) >= ENOUGH and all(trial.result == "other" for trial in trials)


def summed_up(trials: Sequence[Trial], kept: Trial | None, interrupted: bool = False) -> list[str]:
    """Return how many of the starts hung, with an interval, and where the first hang's evidence
    is.
    """
    judged = [trial for trial in trials if trial.result != "other"]
    hangs = sum(trial.result == "hang" for trial in judged)
    if not judged:
        lines = [f"no start could be judged, of {len(trials)}"]
    else:
        low, high = interval(hangs, len(judged), CONFIDENCE)
        share = f"{hangs / len(judged):.0%}, by {CONFIDENCE:.0%} confidence {low:.1%} to {high:.0%}"
        lines = [f"{counted(hangs, 'hang')} in {counted(len(judged), 'start')} ({share})"]
    others = len(trials) - len(judged)
    if others:
        lines.append(f"{counted(others, 'more start')} neither hung nor went well")
    if kept is not None:
        lines += [f"first hang: start {kept.number}, {kept.why}", f"report: {kept.run_dir}"]
    return [f"interrupted: {lines[0]}", *lines[1:]] if interrupted else lines


def _watch(asked: Repeat) -> dict[str, str]:
    """Return the options of the watch: our pipelines end after their first steps, as a script of
    the user's own does anyway, and without barriers, which may hide a race.
    """
    if not is_ours(asked.command):
        return asked.watch
    past = walked_by(asked.command).shows_itself
    return {"past": past, **showing_races(TOGGLES), **asked.watch}


def _tell(trial: Trial, times: int) -> None:
    clock = time.strftime("%H:%M:%S")
    print(
        f"[{clock}] start {trial.number} of {times}: {trial.why}, {seconds(trial.seconds)}",
        file=sys.stderr,
    )
