"""The starts of an isolation or the cells of a matrix, as a table that leads to each."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from ..kept.run import KeptRun
from ..kept.trials import STARTS, Trial, with_reports
from ..words import seconds
from .shown import Shown

_MOST = 2000
_KNOWN = ("ok", "pass", "hang", "crash", "slow")


@dataclass(frozen=True)
class TrialRow:
    number: int
    name: str
    result: str  # "hang", "pass", "ok", ...
    kind: str  # the same as a class of the style sheet
    where: str
    took: str
    link: str  # to its own page or folder; "": there is none


def trial_rows(run: KeptRun, shown: Shown, reported: bool) -> list[TrialRow]:
    """Return a row for each start. `reported`: those that went wrong have reports of their own."""
    pages = {trial.number for trial in with_reports(run.trials)} if reported else frozenset()
    return [_row(trial, shown, trial.number in pages) for trial in run.trials[:_MOST]]


def _row(trial: Trial, shown: Shown, has_page: bool) -> TrialRow:
    link = ""
    # A name that cannot be shown, for it holds a secret or a control character, leads nowhere.
    if trial.link not in ("", ".", "..") and shown.text(trial.link) == trial.link:
        below = f"{STARTS}/" if trial.link.startswith(f"{STARTS}/") else ""
        link = f"./{below}{quote(trial.link.removeprefix(below), safe='')}/"
        link += "report.html" if has_page else ""
    took = "" if trial.seconds is None else seconds(trial.seconds)
    result = trial.result or "not run"
    kind = result if result in _KNOWN else "other"
    name, where = shown.text(trial.name, 200), shown.text(trial.where, 200)
    return TrialRow(trial.number, name, result, kind, where, took, link)
