"""The starts of an isolation or a matrix, as their run folder tells them: the same of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from ...base.facts import Trial
from ...base.lazy_dataclass import dataclass
from ...search.cells import RecordedCell, RecordedMatrix
from ...search.isolation import Isolation, format_setting

TRIALS_FOLDER = "trials"  # the folder of an isolation's starts
FAILED_RESULTS = ("hang", "crash", "slow", "other", "killed")  # results of starts
MOST_REPORTED = 40  # starts of one isolation or matrix that have reports of their own


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


def list_trials(answer: Isolation | RecordedMatrix) -> tuple[RecordedTrial, ...]:
    """Return the starts of it."""
    if isinstance(answer, Isolation):
        return tuple(map(_of_trial, answer.trials))
    return tuple(map(_of_cell, answer.cells))


def _of_trial(one: Trial) -> RecordedTrial:
    return RecordedTrial(
        number=one.number,
        name=format_setting(one.setting),
        settings=one.setting,
        result=one.result,
        where=one.why,
        seconds=one.seconds,
        link=_link(one.run_dir),
    )


def _of_cell(one: RecordedCell) -> RecordedTrial:
    return RecordedTrial(
        number=one.number,
        name=one.name or format_setting(one.setting),
        settings=one.setting,
        result=one.result or "",
        where=one.where,
        seconds=one.seconds,
        link=_link(one.run_dir or ""),
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
